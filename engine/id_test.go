package engine

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestIDSurvivesText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := ID{
			Client: rapid.StringMatching(`[a-z0-9.]{1,64}`).Draw(t, "client"),
			Number: rapid.Uint64().Draw(t, "number"),
			Weight: rapid.IntRange(1, MaxLimit).Draw(t, "weight"),
			Slot:   rapid.Bool().Draw(t, "slot"),
		}
		got, err := ParseID(id.String())
		if err != nil || got != id {
			t.Fatalf("%+v became %q, and then %+v, %v", id, id.String(), got, err)
		}
	})
}

func TestParseIDRefuses(t *testing.T) {
	for _, s := range []string{
		"", "a", "a-1", "a-1-0", "a-1--1", "a-01-1", "a-1-01", "a-+1-1", "A-1-1", "a-1-1x", "!a-1-1", "a-1x-1", "-1-1",
		"a-1-2147483648", "a-18446744073709551616-1", "a-1-1-1", "a b-1-1", "a-1l-1", strings.Repeat("a", 65) + "-1-1",
	} {
		if id, err := ParseID(s); err == nil {
			t.Errorf("%q was read as %+v", s, id)
		} else if len(err.Error()) > 250 {
			t.Errorf("%q: the error has %d bytes", s, len(err.Error()))
		}
	}
}
