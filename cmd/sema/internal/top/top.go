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
	"os"
	"os/signal"
	"sync"
	"syscall"
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

// Stopped says that a signal ended the view.
type Stopped struct{ Signal syscall.Signal }

// Error names the signal.
func (e *Stopped) Error() string { return "stopped by " + e.Signal.String() }

// Run shows the view until its user leaves it, or a signal comes, and leaves the
// terminal as it was. The error is a *Stopped, or the terminal's.
func Run(ctx context.Context, e protocol.Engine, o Options) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w, err := watch.New(e, &watch.Options{Interval: o.Every})
	if err != nil {
		return err
	}
	defer w.Close()
	f := newFeed(ctx, e, w, o)
	defer f.stop()
	defer cancel() // before the feed is waited for
	program := tea.NewProgram(newModel(f, o), append([]tea.ProgramOption{
		tea.WithInput(o.In), tea.WithOutput(o.Out), tea.WithEnvironment(o.Env), tea.WithoutSignalHandler(),
	}, o.Program...)...)
	stopped := make(chan syscall.Signal, 1)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, ending()...)
	defer signal.Stop(signals)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() {
		select {
		case s := <-signals:
			stopped <- s.(syscall.Signal)
			program.Quit()
		case <-ctx.Done():
			program.Quit()
		}
	})
	f.start(program.Send)
	_, err = program.Run()
	select {
	case s := <-stopped:
		return &Stopped{s}
	default:
	}
	if err != nil {
		return fmt.Errorf("top: %w", err)
	}
	return nil
}

// ending are the signals that end the view. One that the program was told to
// ignore stays ignored.
func ending() (list []os.Signal) {
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		if !signal.Ignored(s) {
			list = append(list, s)
		}
	}
	return list
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
