package engine

import (
	"errors"
	"math"
	"testing"
	"time"
)

func TestValidateRange(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string // "": in the range
	}{
		{ValidateRange("", "x", 1, 1, 3), ""},
		{ValidateRange("", "x", 3, 1, 3), ""},
		{ValidateRange("", "x", 0, 1, 3), "sema: x 0: want 1 … 3"},
		{ValidateRange("watch", "x", 4, 1, 3), "watch: x 4: want 1 … 3"},
		{ValidateRange("", "x", math.MinInt, 1, 3), "sema: x -9223372036854775808: want 1 … 3"},
		{ValidateRange("", "x", math.MaxInt, 1, math.MaxInt), ""},
		{ValidateRange("", "x", time.Second, time.Second, time.Minute), ""},
		{ValidateRange("", "x", time.Minute, time.Second, time.Minute), ""},
		{ValidateRange("", "x", -time.Second, time.Second, time.Minute), "sema: x -1s: want 1s … 1m0s"},
		{ValidateRange("", "x", time.Minute+1, time.Second, time.Minute), "sema: x 1m0.000000001s: want 1s … 1m0s"},
	} {
		var refused *ArgumentError
		switch {
		case c.want == "":
			if c.err != nil {
				t.Errorf("%v; want no error", c.err)
			}
		case !errors.As(c.err, &refused) || c.err.Error() != c.want:
			t.Errorf("%v; want %s", c.err, c.want)
		}
	}
}
