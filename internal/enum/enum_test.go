package enum

import "testing"

type word uint8

func (w word) String() string { return Name("word", w, "", "one", "two") }

func TestName(t *testing.T) {
	for w, want := range map[word]string{0: "word(0)", 1: "one", 2: "two", 3: "word(3)", 255: "word(255)"} {
		if got := w.String(); got != want {
			t.Errorf("%d is %q, want %q", uint8(w), got, want)
		}
	}
	if got := Name("word", word(0)); got != "word(0)" {
		t.Errorf("without names: %q", got)
	}
}
