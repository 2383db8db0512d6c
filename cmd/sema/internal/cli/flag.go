package cli

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

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

// duration is the value of a flag: 1m30s, 500ms, and a plain number means
// seconds, as it does for sleep, timeout and flock.
type duration time.Duration

// Set implements pflag.Value.
func (d *duration) Set(text string) error {
	if seconds, err := strconv.ParseFloat(text, 64); err == nil {
		v := seconds * float64(time.Second)
		if v != v || v > float64(1<<62) || v < -float64(1<<62) {
			return fmt.Errorf("out of range")
		}
		*d = duration(v)
		return nil
	}
	v, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("want seconds, or a duration such as 90s or 1m30s")
	}
	*d = duration(v)
	return nil
}

// String implements pflag.Value: help shows no default of nothing.
func (d *duration) String() string {
	if *d == 0 {
		return ""
	}
	return time.Duration(*d).String()
}

// Type implements pflag.Value.
func (d *duration) Type() string { return "duration" }

// durationOf is a duration flag's value with its default set.
func durationOf(v *time.Duration, preset time.Duration) *duration {
	*v = preset
	return (*duration)(v)
}
