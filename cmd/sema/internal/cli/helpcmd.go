package cli

import (
	"strings"

	"github.com/spf13/cobra"
)

// helpCommand is cobra's, but a command that does not exist is an error.
func (p *program) helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND|TOPIC]",
		Short: "Print the help of a command, or of a topic",
		Args:  cobra.ArbitraryArgs,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, start string) ([]string, cobra.ShellCompDirective) {
			var names []string
			for _, c := range cmd.Root().Commands() {
				if len(args) == 0 && (c.IsAvailableCommand() || isTopic(c)) {
					names = append(names, c.Name()+"\t"+c.Short)
				}
			}
			return startingWith(names, start), offerNothing
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			about, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return noCommand(cmd.Root(), strings.Join(args, " "))
			}
			about.InitDefaultHelpFlag()
			return about.Help()
		},
	}
}

func noCommand(root *cobra.Command, name string) error {
	try := "sema --help"
	if meant := root.SuggestionsFor(name); len(meant) > 0 {
		try = "sema " + strings.Join(meant, ", or sema ")
	}
	return usage(try, "there is no command %q", printable(name, 60))
}

// refuseOthers has "sema completion" refuse a shell that it does not know: cobra prints
// help.
func refuseOthers(root *cobra.Command) {
	c, _, _ := root.Find([]string{"completion"})
	c.Args = cobra.ArbitraryArgs
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		return usage("sema completion --help", "there is no completion for %q", printable(args[0], 60))
	}
}

// helpOfNothing has --help behind a command that does not exist fail: cobra
// takes that for the help of the program itself.
func (p *program) helpOfNothing(root *cobra.Command) {
	usual := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		if rest := cmd.Flags().Args(); cmd == root && len(rest) > 0 {
			p.wrongHelp = noCommand(root, rest[0])
			return
		}
		usual(cmd, args)
	})
}
