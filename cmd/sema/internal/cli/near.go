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
		switch d := distance(word, one); {
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

// distance is how many letters somebody has to insert, delete, replace or swap with the
// next one to make b of a.
func distance(a, b string) int {
	a, b = strings.ToLower(a), strings.ToLower(b)
	var before []int
	last := make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row := make([]int, len(b)+1)
		row[0] = i + 1
		for j := range len(b) {
			change := 1
			if a[i] == b[j] {
				change = 0
			}
			row[j+1] = min(last[j]+change, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}

// choice is the value of a flag that takes one of a few words.
type choice struct {
	value *string
	words []string
}

// String implements pflag.Value.
func (c *choice) String() string { return *c.value }

// Type implements pflag.Value: help shows the words.
func (c *choice) Type() string { return strings.Join(c.words, "|") }

// Set implements pflag.Value.
func (c *choice) Set(word string) error {
	if !slices.Contains(c.words, word) {
		return &noChoice{word, c.words}
	}
	*c.value = word
	return nil
}

// noChoice is a word that a flag does not take.
type noChoice struct {
	word  string
	words []string
}

func (e *noChoice) Error() string { return "want " + oneOf(e.words) }

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
	cmd.Flags().Var(&choice{value, words}, name, help)
	// It fails only for a flag that is not there.
	_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(words, offerNothing))
}

// flagError is the program's error for flags that cannot be read: it suggests the flag or
// the word that was meant.
func flagError(cmd *cobra.Command, err error) error {
	try := cmd.CommandPath() + " --help"
	var unknown *pflag.NotExistError
	var value *pflag.InvalidValueError
	var none *noChoice
	switch {
	case errors.As(err, &value) && errors.As(err, &none):
		return noChoiceError(value.GetFlag().Name, none)
	case errors.As(err, &unknown):
		name := unknown.GetSpecifiedName()
		if all := unknown.GetSpecifiedShortnames(); all != "" {
			name = all // -limit, perhaps for --limit
		}
		name, _, _ = strings.Cut(name, "=")
		var known []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) })
		if meant := nearest(name, known); len(meant) > 0 && len(name) > 1 {
			try = "--" + strings.Join(meant, ", or --")
		}
	}
	return usage(try, "%s", printable(flagText(err), 200))
}

// noChoiceError is the program's error for a word that the flag name does not take.
func noChoiceError(name string, none *noChoice) error {
	try := oneOf(none.words)
	if meant := nearest(none.word, none.words); len(meant) > 0 {
		try = "--" + name + "=" + strings.Join(meant, ", or --"+name+"=")
	}
	return usage(try, "there is no --%s=%s", name, printable(none.word, 60))
}
