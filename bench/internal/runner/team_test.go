package runner

import "testing"

func TestQuantile(t *testing.T) {
	values := [][2]int64{{1, 50}, {2, 48}, {3, 1}, {9, 1}}
	for share, want := range map[float64]int64{0.5: 1, 0.51: 2, 0.99: 3, 1: 9} {
		if got := quantile(values, share); got != want {
			t.Errorf("quantile(%v) = %d, want %d", share, got, want)
		}
	}
	if got := quantile(nil, 0.5); got != 0 {
		t.Errorf("quantile of nothing = %d", got)
	}
}
