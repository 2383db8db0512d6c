package history

import (
	"strings"
	"testing"
)

// What the judge finds is planted in judge_test.go. Here it is what a Hold says to
// it.
func TestHoldsAreJudged(t *testing.T) {
	check := func(change func([]Hold)) string {
		holds := []Hold{
			{ID: "a", Weight: 1, Token: 1, Slot: 0, Call: 1, Return: 2, Release: 10, Trusted: 100},
			{ID: "b", Weight: 1, Token: 2, Slot: 1, Call: 3, Return: 4, Release: 12, Trusted: 100},
			{ID: "c", Weight: 2, Token: 3, Slot: 0, Call: 5, Joined: 6, Return: 12, Release: 0, Trusted: 31},
			{ID: "d", Weight: 1, Token: 4, Slot: -1, Call: 7, Joined: 8, Return: 31, Release: 35, Trusted: 90},
		}
		change(holds)
		h := &Holds{}
		for _, hold := range holds {
			h.Add(hold)
		}
		if err := h.Check(2, 0); err != nil {
			return err.Error()
		}
		return ""
	}
	for what, c := range map[string]struct {
		want   string
		change func([]Hold)
	}{
		"good":                                {"", func([]Hold) {}},
		"granted before a release":            {"limit: 3 held", func(h []Hold) { h[2].Return = 11 }},
		"granted before the end of a lease":   {"limit: 3 held", func(h []Hold) { h[2].Trusted = 32 }},
		"got when it was not to be trusted":   {"", func(h []Hold) { h[2].Return, h[2].Trusted = 11, 11 }},
		"a token that repeats":                {"tokens: a token twice", func(h []Hold) { h[3].Token = 2 }},
		"a token that falls back":             {"tokens: ", func(h []Hold) { h[1].Token, h[0].Token = 1, 2 }},
		"an overtaker":                        {"order: ", func(h []Hold) { h[2].Token, h[3].Token = 4, 3 }},
		"an overtaker of one who was stopped": {"", func(h []Hold) { h[2].Token, h[3].Token, h[2].Faulty = 4, 3, true }},
		"a slot held twice":                   {"limit: slot 0 twice", func(h []Hold) { h[1].Slot = 0 }},
	} {
		if got := check(c.change); !strings.HasPrefix(got, c.want) || got != "" && c.want == "" {
			t.Errorf("%s: found %q, want %q", what, got, c.want)
		}
	}
}
