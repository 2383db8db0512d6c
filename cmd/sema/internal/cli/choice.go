package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

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
		return usage("--"+c.flag+"="+c.Type(), "there is no --%s=%s", c.flag, printable(word, 60))
	}
	*c.value = word
	return nil
}

// choiceFlag adds a flag that takes one of the words, by default preset. A shell offers
// them.
func choiceFlag(cmd *cobra.Command, value *string, name, preset, help string, words ...string) {
	*value = preset
	cmd.Flags().Var(&choice{value, name, words}, name, help)
	// It fails only for a flag that is not there.
	_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(words, offerNothing))
}
