package gate

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"sema"
	"sema/engine"
)

// A request may fail with the engine's answer to another request. It does not fail with
// the end of the other request's context, and is not busy.
func TestAnOutageIsOfOneClass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Gate
		away := &engine.Error{Op: "acquire", Name: "x", Err: errors.New("no answer")}
		asking := Asking{Name: "x", Failed: func(Failed) {}, Acquire: func(context.Context, ...sema.AcquireOption) (Permit, error) {
			return nil, fmt.Errorf("%w: %w", away, context.DeadlineExceeded)
		}}
		o := Options{Policy: FailLocal, Places: 1, Wait: NoWait}
		first, err := g.Enter(t.Context(), o, asking)
		if err != nil {
			t.Fatal(err)
		}
		defer Release(first)
		for range 2 { // before the probe has asked, and after that
			_, err = g.Enter(t.Context(), o, asking)
			if !errors.Is(err, sema.ErrEngine) || errors.Is(err, sema.ErrBusy) || errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, errNoPlace) {
				t.Errorf("%v", err)
			}
			synctest.Wait()
		}
	})
}
