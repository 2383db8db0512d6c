package cli

import (
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// nearest returns the known words that somebody may have meant by word, the nearest ones
// only: those that differ by few letters, or else those that begin with word.
func nearest(word string, known []string) []string {
	var meant []string
	best := min(2, max(1, len(word)/3))
	for _, one := range known {
		switch d := distance(strings.ToLower(word), one, best); {
		case d < best:
			meant, best = []string{one}, d
		case d == best:
			meant = append(meant, one)
		}
	}
	if len(meant) == 0 && len(word) > 1 {
		meant = startingWith(known, word)
	}
	return meant
}

// tryNearest is what to try in place of word: the known words that may have been meant,
// each between prefix and suffix, or else what is otherwise to be tried.
func tryNearest(word string, known []string, prefix, suffix, otherwise string) string {
	meant := nearest(word, known)
	if len(meant) == 0 {
		return otherwise
	}
	return prefix + strings.Join(meant, suffix+", or "+prefix) + suffix
}

// distance is how many letters somebody has to insert, delete, replace or swap with the
// next one to make b of a; if it is above most, any number above most.
func distance(a, b string, most int) int {
	for a != "" && b != "" && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	if a == "" || b == "" || most == 0 {
		return max(len(a), len(b))
	}
	d := min(distance(a[1:], b, most-1), distance(a, b[1:], most-1), distance(a[1:], b[1:], most-1))
	if len(a) > 1 && len(b) > 1 && a[0] == b[1] && a[1] == b[0] {
		d = min(d, distance(a[2:], b[2:], most-1))
	}
	return 1 + d
}

// choice is the value of a flag that takes one of a few words.
type choice struct {
	value *string
	flag  string
	words []string
}

// String implements pflag.Value.
func (c *choice) String() string { return *c.value }

// Type implements pflag.Value: help shows the words.
func (c *choice) Type() string { return strings.Join(c.words, "|") }

// Set implements pflag.Value.
func (c *choice) Set(word string) error {
	if !slices.Contains(c.words, word) {
		return noChoice(c.flag, word, c.words)
	}
	*c.value = word
	return nil
}

// oneOf lists words: "a, b or c".
func oneOf(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// choiceFlag adds a flag that takes one of the words, by default preset. A shell offers
// them.
func choiceFlag(cmd *cobra.Command, value *string, name, preset, help string, words ...string) {
	*value = preset
	cmd.Flags().Var(&choice{value, name, words}, name, help)
	// It fails only for a flag that is not there.
	_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(words, offerNothing))
}

// flagError is the program's error for flags that cannot be read: it suggests the flag or
// the word that was meant.
func flagError(cmd *cobra.Command, err error) error {
	try := cmd.CommandPath() + " --help"
	var unknown *pflag.NotExistError
	var none *usageError
	switch {
	case errors.As(err, &none):
		return none
	case errors.As(err, &unknown):
		name := unknown.GetSpecifiedName()
		if all := unknown.GetSpecifiedShortnames(); all != "" {
			name = all // -limit, perhaps for --limit
		}
		name, _, _ = strings.Cut(name, "=")
		var known []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) })
		if len(name) > 1 {
			try = tryNearest(name, known, "--", "", try)
		}
	}
	return usage(try, "%s", printable(flagText(err), 200))
}

// noChoice is the program's error for a word that a flag does not take.
func noChoice(flag, word string, words []string) error {
	return usage(tryNearest(word, words, "--"+flag+"=", "", oneOf(words)), "there is no --%s=%s", flag, printable(word, 60))
}
