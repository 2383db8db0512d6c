package cli

import (
	"github.com/spf13/cobra"
)

// helpCommand is cobra's, but a command that does not exist is an error.
func (p *program) helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Print the help of a command",
		Args:  cobra.ArbitraryArgs,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, start string) ([]string, cobra.ShellCompDirective) {
			var names []string
			for _, c := range cmd.Root().Commands() {
				if len(args) == 0 && c.IsAvailableCommand() {
					names = append(names, c.Name()+"\t"+c.Short)
				}
			}
			return startingWith(names, start), offerNothing
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			about, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return noCommand(args[0])
			}
			about.InitDefaultHelpFlag()
			return about.Help()
		},
	}
}

func noCommand(name string) error {
	return usage("sema --help", "there is no command %q", printable(name, 60))
}

// helpOfNothing has --help behind a command that does not exist fail: cobra
// takes that for the help of the program itself.
func (p *program) helpOfNothing(root *cobra.Command) {
	usual := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		if rest := cmd.Flags().Args(); cmd == root && len(rest) > 0 {
			p.wrongHelp = noCommand(rest[0])
			return
		}
		usual(cmd, args)
	})
}
