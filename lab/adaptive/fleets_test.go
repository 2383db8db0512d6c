package adaptive_test

import (
	"testing"

	"sema/lab/adaptive"
)

// seeds is how often each case is run here; make adapt runs each a thousand times.
const seeds = 1

// A fleet on each kind of server, in virtual time.
func TestFleets(t *testing.T) {
	for _, c := range adaptive.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			f, err := adaptive.Try(&c, 1, seeds)
			t.Logf("%+v", f)
			if err != nil {
				t.Error(err)
			}
		})
	}
}
