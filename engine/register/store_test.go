package register_test

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"

	"sema"
	"sema/engine/register"
	"sema/enginetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// hall is a store that wakes others, and locks.
type hall struct {
	shelf
	row  chan struct{} // whoever has put something in has all rows locked
	ears map[string]func(string)
	most int // that heard at once
}

func newHall() *hall {
	return &hall{shelf: shelf{rows: map[string]register.Next{}}, row: make(chan struct{}, 1), ears: map[string]func(string){}}
}

func (h *hall) Listen(ctx context.Context, process string, heard func(string), up, down func()) {
	set := func(f func(string)) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.ears[process] = f; f == nil {
			delete(h.ears, process)
		}
		h.most = max(h.most, len(h.ears))
	}
	set(heard)
	up()
	<-ctx.Done()
	set(nil)
	down()
}

func (h *hall) Read(ctx context.Context, name string) (register.Row, error) {
	row, err := h.shelf.Read(ctx, name)
	h.dead(name, &row)
	return row, err
}

func (h *hall) dead(name string, row *register.Row) {
	h.mu.Lock()
	defer h.mu.Unlock()
	row.Heads = h.rows[name].Heads
	for _, process := range row.Heads {
		if h.ears[process] == nil {
			row.Dead = append(row.Dead, process)
		}
	}
}

func (h *hall) Swap(ctx context.Context, name string, version int64, n register.Next, from, to int64) (int64, bool, error) {
	h.row <- struct{}{}
	now, ok, err := h.shelf.Swap(ctx, name, version, n, from, to)
	<-h.row
	if ok {
		h.tell(n.Tell)
	}
	return now, ok, err
}

func (h *hall) Update(ctx context.Context, name string, _ bool, f func(register.Row) (register.Next, error)) error {
	h.row <- struct{}{}
	row, _ := h.Read(ctx, name)
	n, err := f(row)
	if err == nil {
		h.mu.Lock()
		h.rows[name] = n
		h.mu.Unlock()
	}
	<-h.row
	if err == nil {
		h.tell(n.Tell)
	}
	return err
}

func (h *hall) tell(all []register.Message) {
	for _, m := range all {
		h.mu.Lock()
		heard := h.ears[m.Process]
		h.mu.Unlock()
		if heard != nil {
			heard(m.Text)
		}
	}
}

// open makes stores whose clients are engines of their own, as those of other
// processes are.
func open(store func() register.Store, is enginetest.Store) func(tb testing.TB) enginetest.Store {
	return func(tb testing.TB) enginetest.Store {
		one, is := store(), is
		is.Client = func(tb testing.TB) sema.Engine {
			e, err := register.New(one, nil)
			if err != nil {
				tb.Fatal(err)
			}
			tb.Cleanup(func() { _ = e.Close() })
			return e
		}
		return is
	}
}

// distant is a hall behind a network: a message takes a while.
type distant struct{ *hall }

const distance = time.Millisecond

func (d distant) Read(ctx context.Context, name string) (register.Row, error) {
	time.Sleep(distance)
	defer time.Sleep(distance)
	return d.hall.Read(ctx, name)
}

func (d distant) Swap(ctx context.Context, name string, version int64, n register.Next, from, to int64) (int64, bool, error) {
	time.Sleep(distance)
	defer time.Sleep(distance)
	return d.hall.Swap(ctx, name, version, n, from, to)
}

func (d distant) Update(ctx context.Context, name string, first bool, f func(register.Row) (register.Next, error)) error {
	time.Sleep(distance)
	defer time.Sleep(distance)
	return d.hall.Update(ctx, name, first, func(r register.Row) (register.Next, error) {
		time.Sleep(2 * distance) // the row is there, and what becomes of it is on its way
		return f(r)
	})
}

func polled() register.Store { return &shelf{rows: map[string]register.Next{}} }
func told() register.Store   { return newHall() }

func TestPromises(t *testing.T) { enginetest.Run(t, open(told, enginetest.Store{Virtual: true})) }

func TestPromisesOfThoseWhoKeep(t *testing.T) {
	enginetest.Run(t, open(told, enginetest.Store{Virtual: true, Keep: true}))
}

func TestPromisesOfThoseWhoPoll(t *testing.T) {
	enginetest.Run(t, open(polled, enginetest.Store{Virtual: true}))
}

func TestPromisesOfADistantStore(t *testing.T) {
	enginetest.Run(t, open(func() register.Store { return distant{newHall()} }, enginetest.Store{Virtual: true}))
}

func BenchmarkEngine(b *testing.B) { enginetest.Benchmark(b, open(told, enginetest.Store{})) }
