package cli

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"sema/engine"
)

const rootHelp = `Run at most N commands at once, across processes and hosts.

  sema run -n 3 downloads -- curl -O https://example.org/file

A semaphore is a name with a limit. All processes that use one name on one
engine share it. sema grants permits in the order of the requests. The limit is
the newest -n, unless an operator sets it with sema limit.

Engines, by --url or $SEMA_URL:
  (none)                              one user on one host; nothing to install
  file:///dir                         the same, in another directory
  redis://host:6379/0                 all hosts that reach this Redis or Valkey
  redis+sentinel://host:26379/master  Redis behind Sentinel
  redis+cluster://host:6379           Redis Cluster
  postgres://user@host/database       a table in PostgreSQL: see sema migrate
  http://host:7362                    the engine of a sema serve

Does the engine answer, and may sema work there? sema ping says so.`

// Root is the tree of commands, for what is made from their help.
func Root() *cobra.Command {
	root := (&program{}).root()
	root.DisableAutoGenTag = true // the same pages every day
	for _, c := range root.Commands() {
		if fields := c.Annotations[jsonMark]; fields != "" {
			c.Long += "\n\nWith --json, " + fields
		}
	}
	return root
}

// root is the tree for a command line. "sema run" needs no other command, and to make them
// takes longer than its permit.
func (p *program) root(args ...string) *cobra.Command {
	root := &cobra.Command{
		Use:           "sema",
		Short:         "Run at most N commands at once, across processes and hosts",
		Long:          rootHelp,
		SilenceErrors: true,
		SilenceUsage:  true,

		SuggestionsMinimumDistance: 2,
	}
	showVersion := false
	root.Flags().BoolVar(&showVersion, "version", false, "print the version")
	root.PersistentFlags().StringVar(&p.url, "url", "", "engine; default $SEMA_URL, or else a directory of this user")
	root.AddCommand(p.runCommand())
	if len(args) == 0 || args[0] != "run" {
		root.AddCommand(
			p.acquireCommand(), p.renewCommand(),
			p.lsCommand(), p.findCommand(), p.showCommand(), p.whyCommand(), p.limitCommand(), p.applyCommand(), p.adaptCommand(), p.serveCommand(),
			p.migrateCommand(), p.pingCommand(), p.versionCommand(),
		)
		root.AddCommand(topics()...)
		for _, op := range operations {
			root.AddCommand(p.operationCommand(op))
		}
		root.InitDefaultCompletionCmd(args...)
		refuseOthers(root)
	}
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		// A variable that was meant to hold a URL must not mean this host.
		if f := cmd.Flags().Lookup("url"); f != nil && f.Changed && p.url == "" {
			return usage(cmd.CommandPath()+" --help", "--url is empty: leave it out for $SEMA_URL or a directory of this user")
		}
		return nil
	}
	root.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return noCommand(root, args[0])
		}
		if showVersion {
			return p.writeVersion()
		}
		return cmd.Help()
	}
	root.Args = cobra.ArbitraryArgs
	root.SetFlagErrorFunc(flagError)
	root.SetUsageFunc(writeUsage)
	helpCommand := p.helpCommand()
	root.SetHelpCommand(helpCommand)
	root.AddCommand(helpCommand)
	p.helpOfNothing(root)
	return root
}

// flagError is the program's error for flags that cannot be read.
func flagError(cmd *cobra.Command, err error) error {
	if own, ok := errors.AsType[*usageError](err); ok {
		return own
	}
	return usage(cmd.CommandPath()+" --help", "%s", printable(flagText(err), 200))
}

// flagText is the error of a flag without strconv's words.
func flagText(err error) string {
	value, ok := errors.AsType[*pflag.InvalidValueError](err)
	number, ok2 := errors.AsType[*strconv.NumError](err)
	if !ok || !ok2 {
		return err.Error()
	}
	want := "a whole number"
	switch kind := value.GetFlag().Value.Type(); {
	case errors.Is(number, strconv.ErrRange):
		want = "a smaller number"
	case kind == "bool":
		want = "true or false"
	case strings.HasPrefix(kind, "float"):
		want = "a number"
	}
	return fmt.Sprintf("--%s %s: want %s", value.GetFlag().Name, value.GetValue(), want)
}

// newCommand is a command. The words behind [flags] in use are its arguments, and a shell
// offers them. The first is a name, or a text with the same bounds; one in brackets may be
// missing.
func (p *program) newCommand(use, short, long string, run func(*cobra.Command, []string) error) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Long: long, RunE: run}
	_, words, _ := strings.Cut(use, " [flags] ")
	most := len(strings.Fields(words))
	least := most - strings.Count(words, "[")
	cmd.Args = func(_ *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return usage(cmd.CommandPath()+" --help", "want %s %s", cmd.CommandPath(), cmp.Or(words, "without arguments"))
		}
		if least > 0 {
			return checkName(args[0])
		}
		return nil
	}
	if strings.HasPrefix(words, "NAME") {
		cmd.ValidArgsFunction = p.complete(words)
	}
	return cmd
}

// checkName refuses a name that no semaphore can have, before anything is done.
func checkName(name string) error {
	if err := engine.ValidateName(name); err != nil {
		return usage("a name of 1 to 255 bytes, such as github-api", "%s", err)
	}
	return nil
}

// write prints to standard output.
func (p *program) write(format string, args ...any) error {
	if _, err := fmt.Fprintf(p.stdout, format, args...); err != nil {
		return &exit{exitOutput, fmt.Errorf("standard output: %w", err)}
	}
	return nil
}
