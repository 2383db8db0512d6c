package view_test

import (
	"testing"

	"sema/engine"
	"sema/internal/view"
)

func TestAdapting(t *testing.T) {
	st := engine.State{Limit: 37}
	if got := view.Adapts(st); got != "" {
		t.Errorf("nobody finds the limit, and it says %q", got)
	}
	st.Auto = &engine.Auto{Min: 2, Max: 200, Bad: 31}
	if got, want := view.Adapts(st), "adapting 2…200: 3.1 % of the time held was bad in the last window"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
