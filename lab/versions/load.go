// Package versions has programs of two releases of sema share one semaphore under load, and
// judges what they wrote down: an upgrade, and a return to the release before.
package versions

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"sema"
	"sema/engine"
	"sema/lab/child"
	"sema/lab/history"
)

// Lease is that of the load's permits.
const Lease = 3 * time.Second

// Work is what one process does.
type Work struct {
	Process        int // its number, which is not another one's
	Name           string
	Limit, Callers int
	Keeps          int // so many of the callers hold for Long
}

// Long is how long those hold that keep a permit while others come and go.
const Long = time.Second

// Serve acquires, holds and gives back by the callers of w, in a process that was started
// for it. It says "serves" when it has had a permit, works until it is told a line, and
// says then what it has seen: an event of package history a line.
func (w Work) Serve(e engine.Engine) error {
	sem, err := sema.New(e, w.Name, w.Limit, &sema.Options{Lease: Lease, Label: fmt.Sprint("process ", w.Process)})
	if err != nil {
		return err
	}
	log := &log{first: make(chan struct{})}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var all sync.WaitGroup
	for c := range w.Callers {
		all.Go(func() { w.caller(ctx, sem, log, c) })
	}
	go func() {
		<-log.first
		fmt.Println("serves")
	}()
	_, err = child.Order()
	stop()
	all.Wait()
	err = errors.Join(err, sem.Close())
	out := bufio.NewWriter(os.Stdout)
	for _, e := range log.events {
		_, _ = out.Write(e.Line()) // Flush says it
	}
	return errors.Join(err, out.Flush())
}

// log is what a process saw.
type log struct {
	mu     sync.Mutex
	once   sync.Once
	first  chan struct{} // closed with the first permit
	events []history.Event
}

func (l *log) note(e history.Event) {
	l.mu.Lock()
	l.events = append(l.events, e)
	l.mu.Unlock()
	if e.Kind == history.Got {
		l.once.Do(func() { close(l.first) })
	}
}

// caller acquires and gives back until its process is to end. It waits for the last
// permit as for the others.
func (w Work) caller(ctx context.Context, sem *sema.Semaphore, log *log, number int) {
	r := rand.New(rand.NewPCG(uint64(w.Process), uint64(number)))
	for op := int64(number); ctx.Err() == nil; op += int64(w.Callers) {
		note := func(kind history.Kind, e history.Event) {
			e.At, e.Kind, e.Worker, e.Op = history.Now(), kind, w.Process, op
			log.note(e)
		}
		note(history.Call, history.Event{Weight: 1})
		p, err := sem.Acquire(context.Background())
		if err != nil {
			note(history.Failed, history.Event{Error: history.ErrOther, Text: err.Error()})
			return
		}
		note(history.Got, history.Event{Permit: p.ID(), Token: p.Token(), Held: history.Now()})
		hold := time.Duration(1+r.IntN(5)) * time.Millisecond
		if number < w.Keeps {
			hold = Long
		}
		timer, held := time.NewTimer(hold), p.Context(context.Background())
		select {
		case <-timer.C:
		case <-held.Done():
			timer.Stop()
			note(history.Lost, history.Event{Error: history.ErrLost, Text: fmt.Sprint(p.Err())})
		}
		note(history.Release, history.Event{Held: history.Now()})
		e := history.Event{}
		if err := p.Release(); err != nil {
			e.Error, e.Text = history.ErrOther, err.Error()
		}
		note(history.Released, e)
		// Others are to have a chance of an empty queue.
		time.Sleep(time.Duration(r.IntN(3)) * time.Millisecond)
	}
}
