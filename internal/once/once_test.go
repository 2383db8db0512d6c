package once_test

import (
	"testing"
	"testing/synctest"
	"time"

	"sema/internal/once"
)

func TestAllWaitForTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o once.Once
		began, done := time.Now(), 0
		ended := make(chan time.Duration)
		for range 10 {
			go func() {
				o.Do(func() {
					time.Sleep(time.Minute)
					done++
				})
				ended <- time.Since(began)
			}()
		}
		for range 10 {
			if after := <-ended; after != time.Minute {
				t.Errorf("returned after %v, want a minute", after)
			}
		}
		o.Do(func() { done++ })
		if done != 1 {
			t.Errorf("done %d times", done)
		}
	})
}

func TestAPanicIsAnEnd(t *testing.T) {
	var o once.Once
	func() {
		defer func() { _ = recover() }()
		o.Do(func() { panic("a test's") })
	}()
	o.Do(func() { t.Error("done again") })
}
