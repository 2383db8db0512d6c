package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"sema"
	"sema/engine"
)

const rootHelp = `Run at most N commands at once, across processes and hosts.

  sema run -n 3 downloads -- curl -O https://example.org/file

A semaphore is a name with a limit; everybody with the same name and the same
engine shares it. The newest -n holds, and one that an operator sets with sema
limit holds against all. Permits are granted in the order they were asked for.

Engines, chosen by --url or $SEMA_URL:
  (none)                                        this user on this host, nothing to install:
                                                /var/tmp/sema-UID
  file:///dir                                   the same in a directory of choice (local disk);
                                                ?shared behind it: for all members of the
                                                directory's group
  redis://[user:password@]host[:port][/db]      across hosts; rediss:// with TLS
  redis+sentinel://host[:port],…/master[?db=n]  Redis behind Sentinel; rediss+sentinel://
  redis+cluster://host[:port],…                 Redis Cluster; rediss+cluster://
  postgres://[user@]host[:port]/database        in a table that sema migrate makes;
                                                $PGPASSWORD or ~/.pgpass has the password
  http://host:port                              behind sema serve; https:// with TLS;
                                                $SEMA_SERVER_TOKEN has the token,
                                                NAME.SECRET
  …?replicas=N on Redis: a grant counts only when N replicas have it
A server out of reach is tried for three seconds before a command gives up;
what waits for a permit waits for the server as well, as long as --wait says.
A semaphore that nobody uses is forgotten after two leases and a minute or two,
and its limit with it, unless the limit was set with sema limit.
A password on a command line can be seen by other users of the host: put it
into $SEMA_URL. Behind Sentinel, user:password@ is for the Redis servers;
?sentinel_username=…&sentinel_password=… for the Sentinels.

With --json an error is an object too, in one line on standard error:
  error, try (what to do instead; may be ""), exit_code
Completion of commands, flags, names and permits: sema completion --help.

` + exitCodesHelp

// Root is the tree of commands, for what is made from their help.
func Root() *cobra.Command {
	root := (&program{}).root()
	root.DisableAutoGenTag = true // the same pages every day
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

		SuggestionsMinimumDistance: 2, // letters that differ
	}
	showVersion := false
	root.Flags().BoolVar(&showVersion, "version", false, "print the version")
	root.PersistentFlags().StringVar(&p.url, "url", "", "where semaphores live (default $SEMA_URL, or else a directory of this user)")
	root.AddCommand(p.runCommand())
	if len(args) == 0 || args[0] != "run" {
		root.AddCommand(
			p.acquireCommand(), p.renewCommand(),
			p.lsCommand(), p.findCommand(), p.showCommand(), p.whyCommand(), p.topCommand(), p.limitCommand(), p.adaptCommand(), p.serveCommand(),
			p.migrateCommand(), p.benchCommand(), p.benchDriverCommand(), p.versionCommand(),
		)
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
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usage(cmd.CommandPath()+" --help", "%s", printable(flagText(err), 200))
	})
	root.SetHelpCommand(p.helpCommand())
	p.helpOfNothing(root)
	return root
}

// flagText is the error of a flag without strconv's words.
func flagText(err error) string {
	var value *pflag.InvalidValueError
	var number *strconv.NumError
	if !errors.As(err, &value) || !errors.As(err, &number) {
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

// needArgs checks the number of arguments; words names them.
func needArgs(least, most int, words string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return usage(cmd.CommandPath()+" --help", "want %s %s", cmd.CommandPath(), words)
		}
		if least > 0 {
			return checkName(args[0])
		}
		return nil
	}
}

// checkName refuses a name that no semaphore can have, before anything is done.
func checkName(name string) error {
	err := engine.ValidateName(name)
	var argument *sema.ArgumentError
	if errors.As(err, &argument) {
		return usage("a name of 1 to 255 bytes, such as github-api", "%s", err)
	}
	return err
}

// jsonFlag adds --json to a command.
func (p *program) jsonFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&p.json, "json", false, "print JSON, errors too")
}

// write prints to standard output.
func (p *program) write(format string, args ...any) error {
	if _, err := fmt.Fprintf(p.stdout, format, args...); err != nil {
		return &exit{exitOutput, fmt.Errorf("standard output: %w", err)}
	}
	return nil
}

// help joins the parts of a command's help.
func help(parts ...string) string { return strings.Join(parts, "\n\n") }
