package cli_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"sema/cmd/sema/internal/cli"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/pages"
)

// Each command line of sema that a page shows has a command and flags that there are.
func TestPagesShowCommandsThatThereAre(t *testing.T) {
	root := cli.Root()
	pages.Check{
		Claim: regexp.MustCompile("`(sema [a-z][^`\n]*)`|(?m)^ *(?:\\$ )?(?:bin/)?(sema [a-z]+ [^\n#|]*-[^\n#|]*)(?:[#|].*)?$"),
		True: func(line string) bool {
			words := strings.Fields(line)[1:]
			command, rest, err := root.Find(words)
			if err != nil || command == root {
				return words[0] == "help" || line == "sema log 1" // how a file begins
			}
			command.InitDefaultHelpFlag()
			for _, word := range rest {
				name, long := strings.CutPrefix(word, "--")
				switch name, _, _ = strings.Cut(strings.TrimRight(name, ".,;:)"), "="); {
				case !long:
				case name == "": // the command behind it is another program's
					return true
				case command.Flags().Lookup(name) == nil && command.InheritedFlags().Lookup(name) == nil:
					return false
				}
			}
			return true
		},
		Is: "command line",
	}.Run(t, "Then `sema run --patience 5 x -- true` waits.")
}

// Each flag that a page names by itself is one of some command.
func TestPagesNameFlagsThatThereAre(t *testing.T) {
	flags := map[string]bool{"fg": true, "st": true} // of GNU sem
	var add func(c *cobra.Command)
	add = func(c *cobra.Command) {
		c.LocalFlags().VisitAll(func(f *pflag.Flag) { flags[f.Name] = true })
		for _, below := range c.Commands() {
			add(below)
		}
	}
	add(cli.Root())
	pages.Check{
		Claim: regexp.MustCompile("`--([a-z-]+)[^`\n]*`"),
		True:  func(claim string) bool { return flags[claim] },
		Is:    "flag",
	}.Run(t, "With `--patience 5s` it waits.")
}

// Each address on this host that a page shows has the port of sema serve, of its profiles, or of Redis.
func TestPagesShowThePortsThatThereAre(t *testing.T) {
	serve, _, err := cli.Root().Find([]string{"serve"})
	expect.OK(t, err)
	_, port, _ := strings.Cut(serve.Flag("listen").DefValue, ":")
	pages.Check{
		Claim: regexp.MustCompile(`(?:https?://|redis://|--listen |--profile )(?:127\.0\.0\.1|localhost|sema):(\d+)`),
		True: func(claim string) bool {
			return claim == port || claim == "6379" || strings.Contains(serve.Flag("profile").Usage, ":"+claim+":")
		},
		Is: "port",
	}.Run(t, "Then `curl http://127.0.0.1:8080/v1` asks it.")
}
