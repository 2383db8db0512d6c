package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"sema/engine"
	"sema/internal/loop"
	"sema/internal/view"
	seen "sema/watch"
)

const lsHelp = `List the semaphores that exist: those in use, and those whose limit an operator
set. On Redis this reads all keys of the database.`

func (p *program) lsCommand() *cobra.Command {
	filter, every := "", time.Duration(0)
	cmd := p.newCommand("ls [flags]", "List semaphores", lsHelp, func(cmd *cobra.Command, _ []string) error {
		return p.show(cmd, every, func(ctx context.Context, at *openEngine) (found, error) {
			list, err := at.list(ctx, filter)
			if err != nil || len(list) == 0 {
				such := ""
				if filter != "" {
					such = fmt.Sprintf(" with %q in their names", filter)
				}
				return found{listJSON{[]view.Summary{}}, "", fmt.Sprintf("%s has no semaphores%s now", at.where(), such)}, err
			}
			return found{doc: listJSON{p.summaries(list)}, table: aligned(func(t io.Writer) { tableOfAll(t, list) })}, nil
		})
	})
	cmd.Flags().StringVar(&filter, "filter", "", "only names that contain this, in upper or lower case")
	watchFlag(cmd, &every)
	p.jsonFlag(cmd, `ls prints an object with one list:
  semaphores: list of name, limit, pinned, paused, used, free (weights),
    holding (permits), waiting (callers), oldest_seconds (the longest wait),
    cooldown (as show has it),
    error (only if the semaphore cannot be read: the rest may be old, or 0)`)
	return cmd
}

// tableOfAll is a list of semaphores for human eyes.
func tableOfAll(t io.Writer, list []seen.Summary) {
	fmt.Fprintf(t, "NAME\tLIMIT\tUSED\tHOLDERS\tWAITING\n")
	for _, s := range list {
		state := ""
		switch {
		case s.Err != nil:
			state = "  cannot be read"
		case s.Paused:
			state = "  paused"
		case s.Cooldown != nil:
			state = "  nobody begins for " + brief(s.Cooldown.Left)
		case s.Observed != nil:
			state = "  only watched"
		}
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d%s\n", printable(s.Name, engine.MaxName), s.Limit, s.Used, s.Holders, s.Waiting, state)
	}
}

// listJSON is a list of semaphores.
type listJSON struct {
	Semaphores []view.Summary `json:"semaphores"`
}

// list looks at all semaphores with filter in their names.
func (at *openEngine) list(ctx context.Context, filter string) (list []seen.Summary, err error) {
	ctx, cancel := context.WithTimeout(ctx, 6*callTime) // a large database takes time
	defer cancel()
	err = loop.Repeat(ctx, func() error {
		w, err := seen.New(at.Engine, &seen.Options{Rate: 100_000}) // a Watcher remembers what failed
		if err != nil {
			return err
		}
		defer w.Close()
		list, _, err = w.Summaries(ctx, seen.Query{Filter: filter})
		return err
	})
	gone := func(s seen.Summary) bool { return s.Limit == 0 && s.Err == nil } // since the names were listed
	return slices.DeleteFunc(list, gone), unreachable("list", "", err)
}

func (p *program) summaries(list []seen.Summary) []view.Summary {
	shown := []view.Summary{}
	for _, s := range list {
		j := view.Summarize(s)
		if s.Err != nil {
			j.Error = p.clean(s.Err.Error())
		}
		shown = append(shown, j)
	}
	return shown
}
