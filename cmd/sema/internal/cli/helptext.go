package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

type commandGroup struct {
	title    string
	commands []string
}

// groups are the commands as help lists them. A command that is not here is not listed.
var groups = []commandGroup{
	{"Run commands, take permits:", []string{"run", "acquire", "renew", "release"}},
	{"Look:", []string{"ls", "show", "why", "find"}},
	{"Change:", []string{"limit", "apply", "adapt", "pause", "unpause", "revoke", "rm", "migrate"}},
	{"Serve:", []string{"serve"}},
	{"Other:", []string{"ping", "version", "completion", "help"}},
}

// isTopic reports whether a command is a page of help only.
func isTopic(c *cobra.Command) bool { return !c.Hidden && !c.Runnable() && !c.HasSubCommands() }

// topics are the pages that say more than the help of a command.
func topics() []*cobra.Command {
	return []*cobra.Command{
		{Use: "engines", Short: "Where semaphores live: URLs, passwords, outages", Long: enginesHelp},
		{Use: "exit-codes", Short: "Exit codes of all commands, and errors as JSON", Long: exitCodesHelp},
		{Use: "run-details", Short: "Environment, signals, lost permits and processes of sema run", Long: runDetails},
	}
}

// lessUsed marks flags that help lists after the others.
func lessUsed(cmd *cobra.Command, names ...string) {
	for _, name := range names {
		cmd.Flags().Lookup(name).Annotations = map[string][]string{lessUsedMark: nil}
	}
}

const lessUsedMark = "sema_less_used"

// jsonMark is the annotation of a command that has the fields of its JSON.
const jsonMark = "json"

// jsonFlag adds --json to a command; fields documents what it prints.
func (p *program) jsonFlag(cmd *cobra.Command, fields string) {
	cmd.Flags().BoolVar(&p.json, "json", false, "print JSON, errors too")
	cmd.Flags().SortFlags = false
	cmd.Annotations = map[string]string{jsonMark: fields}
}

// helpWidth is the longest line of help, in columns.
const helpWidth = 80

// writeUsage writes what help shows below a command's description.
func writeUsage(c *cobra.Command) error {
	var b strings.Builder
	b.WriteString("Usage:\n")
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "  %s COMMAND\n", c.CommandPath())
	} else {
		fmt.Fprintf(&b, "  %s\n", c.UseLine())
	}
	writeCommands(&b, c)
	var common, rest pflag.FlagSet // not sorted
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if _, ok := f.Annotations[lessUsedMark]; ok {
			rest.AddFlag(f)
		} else {
			common.AddFlag(f)
		}
	})
	for _, set := range []struct {
		title string
		flags *pflag.FlagSet
	}{{"Flags", &common}, {"More flags", &rest}, {"Flags of all commands", c.InheritedFlags()}} {
		if set.flags.HasAvailableFlags() {
			fmt.Fprintf(&b, "\n%s:\n%s", set.title, set.flags.FlagUsagesWrapped(helpWidth))
		}
	}
	if fields := c.Annotations[jsonMark]; fields != "" {
		fmt.Fprintf(&b, "\nWith --json, %s\n", fields)
	}
	if !c.HasParent() {
		b.WriteString("\nTopics:\n")
		for _, t := range c.Commands() {
			if isTopic(t) {
				fmt.Fprintf(&b, "  sema help %-15s %s\n", t.Name(), t.Short)
			}
		}
		b.WriteString("\nMore about a command: sema COMMAND --help\n")
	} else if c.Runnable() {
		b.WriteString("\nExit codes: sema help exit-codes\n")
	}
	_, err := c.OutOrStdout().Write([]byte(b.String()))
	return err
}

// writeCommands lists the commands below c, those of the program by group.
func writeCommands(b *strings.Builder, c *cobra.Command) {
	lists, byName := groups, map[string]*cobra.Command{}
	var available []string
	for _, s := range c.Commands() {
		byName[s.Name()] = s
		if s.IsAvailableCommand() {
			available = append(available, s.Name())
		}
	}
	if c.HasParent() {
		lists = []commandGroup{{"Commands:", available}}
	}
	if len(available) == 0 {
		return
	}
	for _, g := range lists {
		fmt.Fprintf(b, "\n%s\n", g.title)
		for _, name := range g.commands {
			if s := byName[name]; s != nil {
				fmt.Fprintf(b, "  %-11s %s\n", s.Name(), s.Short)
			}
		}
	}
}
