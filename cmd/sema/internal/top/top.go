// Package top is a live view of semaphores on a terminal: all of them, or one
// with its holders and waiters. Operators can also act on them.
//
// A feed looks at the engine, as often as the view is drawn anew, and an update
// never waits for it: what a key asks of the engine comes back as a message.
package top

import (
	"context"
	"fmt"
	"io"
	"time"

	tea "charm.land/bubbletea/v2"

	"sema/internal/protocol"
	"sema/watch"
)

// Options of Run and Once.
type Options struct {
	Where  string        // the engine, as people know it
	Order  string        // of the list: one of Orders; default the first
	Filter string        // names contain it
	Every  time.Duration // between two looks

	In  io.Reader // a terminal
	Out io.Writer // a terminal
	Env []string

	Program []tea.ProgramOption // further ones, for tests
}

// Run shows the view until its user leaves it, or ctx ends, and leaves the terminal as it
// was. The error is the terminal's.
func Run(ctx context.Context, e protocol.Engine, o Options) error {
	w, err := watch.New(e, &watch.Options{Interval: o.Every})
	if err != nil {
		return err
	}
	defer w.Close()
	f := newFeed(ctx, e, w, o)
	defer f.stop()
	program := tea.NewProgram(newModel(f, o), append([]tea.ProgramOption{
		tea.WithInput(o.In), tea.WithOutput(o.Out), tea.WithEnvironment(o.Env), tea.WithoutSignalHandler(),
	}, o.Program...)...)
	defer context.AfterFunc(ctx, program.Quit)()
	f.start(program.Send)
	if _, err = program.Run(); err != nil {
		return fmt.Errorf("top: %w", err)
	}
	return nil
}

// Once is the list of one moment, and how many there are in all. rows bounds
// it; 0: all.
func Once(ctx context.Context, e protocol.Engine, o Options, rows int) ([]watch.Summary, int, error) {
	w, err := watch.New(e, &watch.Options{Rate: 100_000})
	if err != nil {
		return nil, 0, err
	}
	defer w.Close()
	list, total, err := w.Summaries(ctx, watch.Query{Filter: o.Filter, Order: o.Order, N: rows})
	if err != nil {
		return nil, 0, err
	}
	there := list[:0]
	for _, s := range list {
		if s.Limit > 0 || s.Err != nil { // else it is gone since
			there = append(there, s)
		}
	}
	return there, total, nil
}
