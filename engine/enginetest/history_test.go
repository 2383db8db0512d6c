package enginetest

import (
	"strings"
	"testing"
)

// A checker that finds nothing is worth nothing: each kind of broken promise
// is planted once.
func TestHistoryFindsPlantedBugs(t *testing.T) {
	good := []Hold{
		{ID: "a", Weight: 1, Token: 1, Slot: 0, Call: 1, Return: 2, Release: 10, Trusted: 100},
		{ID: "b", Weight: 1, Token: 2, Slot: 1, Call: 3, Return: 4, Release: 12, Trusted: 100},
		{ID: "c", Weight: 2, Token: 3, Slot: 0, Call: 5, Joined: 6, Return: 13, Release: 0, Trusted: 30},
		{ID: "d", Weight: 1, Token: 4, Slot: -1, Call: 7, Joined: 8, Return: 31, Release: 35, Trusted: 90},
	}
	check := func(change func([]Hold)) error {
		h := &History{}
		holds := append([]Hold(nil), good...)
		change(holds)
		for _, hold := range holds {
			h.Add(hold)
		}
		return h.Check(2, 0)
	}
	if err := check(func([]Hold) {}); err != nil {
		t.Fatalf("a good history: %v", err)
	}
	for want, change := range map[string]func([]Hold){
		"limit: 3":       func(h []Hold) { h[2].Return = 11 },              // granted before a release
		"limit: 3 held":  func(h []Hold) { h[2].Trusted = 40 },             // a lease that ended too early
		"token: 2 was":   func(h []Hold) { h[3].Token = 2 },                // one that repeats
		"token: b asked": func(h []Hold) { h[1].Token, h[0].Token = 1, 2 }, // one that falls back
		"order: d asked": func(h []Hold) { h[2].Token, h[3].Token = 4, 3 }, // an overtaker
		"slot 0: limit":  func(h []Hold) { h[1].Slot = 0 },                 // a slot held twice
	} {
		err := check(change)
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("planted %q, found %v", want, err)
		}
	}
	if err := check(func(h []Hold) { h[2].Token, h[3].Token, h[2].Faulty = 4, 3, true }); err != nil {
		t.Errorf("who was stopped may lose its place: %v", err)
	}
}
