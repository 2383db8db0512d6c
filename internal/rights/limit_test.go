package rights

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

func TestEachKeyHasItsBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &RateLimit{Burst: 3, Every: time.Second}
		for range 3 {
			if d := l.Wait("a"); d != 0 {
				t.Errorf("wait %v", d)
			}
			l.Take("a")
		}
		if a, b := l.Wait("a"), l.Wait("b"); a != time.Second || b != 0 {
			t.Errorf("wait %v and %v", a, b)
		}
		time.Sleep(time.Second)
		if d := l.Wait("a"); d != 0 {
			t.Errorf("wait %v", d)
		}
		l.Take("a")
		if d := l.Wait("a"); d != time.Second {
			t.Errorf("wait %v", d)
		}
		time.Sleep(time.Hour)
		for range 3 {
			l.Take("a")
		}
		if d := l.Wait("a"); d != time.Second {
			t.Errorf("more than the burst is saved: wait %v", d)
		}
		for i := range 3 * maxKeys {
			l.Take(strconv.Itoa(i))
		}
		if len(l.full) > maxKeys {
			t.Errorf("%d keys", len(l.full))
		}
	})
}
