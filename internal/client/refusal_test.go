package client

import (
	"testing"
	"time"
)

// What a line takes for a weight of 1, after some grants, each a second after the one before.
func TestThePaceOfALine(t *testing.T) {
	type grant struct {
		waited time.Duration
		weight int
	}
	times := func(n int, g grant) (all []grant) {
		for range n {
			all = append(all, g)
		}
		return all
	}
	for _, c := range []struct {
		name        string
		grants      []grant
		least, most time.Duration
	}{
		{"nothing is known", nil, 0, 0},
		{"one grant is believed", []grant{{6 * time.Second, 3}}, 2 * time.Second, 2 * time.Second},
		{"a heavy grant counts for its weight", []grant{{6 * time.Second, 6}}, time.Second, time.Second},
		{"a steady line", times(9, grant{time.Second, 10}), 100 * time.Millisecond, 100 * time.Millisecond},
		{"a quicker line, after 4 grants", append(times(9, grant{time.Minute, 1}), times(4, grant{time.Second, 1})...), time.Second, 5 * time.Second},
		{"a slower line, after 16 grants", append(times(9, grant{time.Second, 10}), times(16, grant{10 * time.Second, 10})...), 850 * time.Millisecond, time.Second},
		{"a stall of 80 grants", append(times(9, grant{time.Second, 1}), grant{81 * time.Second, 1}), 11 * time.Second, 11 * time.Second},
		{"6 grants after it", append(append(times(9, grant{time.Second, 1}), grant{81 * time.Second, 1}), times(6, grant{time.Second, 1})...), time.Second, 1200 * time.Millisecond},
		{"a grant at once", []grant{{0, 5}}, 1, 1},
		{"more than can be estimated", []grant{{longest, 1}, {longest, 1}}, longest, longest},
	} {
		var p pace
		now := time.Hour
		for _, g := range c.grants {
			now += time.Second
			p.learn(now, g.waited, g.weight)
		}
		if got := p.wait(1); got < c.least || got > c.most {
			t.Errorf("%s: %v, want %v … %v", c.name, got, c.least, c.most)
		}
		if got := p.wait(1_000_000); got < c.least || got > longest {
			t.Errorf("%s: %v for a weight of a million", c.name, got)
		}
	}
}
