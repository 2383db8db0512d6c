package register_test

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"

	"sema"
	"sema/engines/register"
	"sema/enginetest"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/opened"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// lockingStore is a store with both optional abilities: an Updater and a Listener.
type lockingStore struct {
	mapStore
	row       chan struct{} // the lock of all rows: locked while it holds an element
	listeners map[string]func(string)
	most      int // the largest number of listeners so far
}

func newLockingStore() *lockingStore {
	return &lockingStore{mapStore: mapStore{rows: map[string]register.Next{}}, row: make(chan struct{}, 1), listeners: map[string]func(string){}}
}

func (h *lockingStore) Listen(ctx context.Context, process string, receive func(string), up, down func()) {
	set := func(f func(string)) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.listeners[process] = f; f == nil {
			delete(h.listeners, process)
		}
		h.most = max(h.most, len(h.listeners))
	}
	set(receive)
	up()
	<-ctx.Done()
	set(nil)
	down()
}

func (h *lockingStore) Read(ctx context.Context, name string) (register.Row, error) {
	row, err := h.mapStore.Read(ctx, name)
	h.dead(name, &row)
	return row, err
}

func (h *lockingStore) dead(name string, row *register.Row) {
	h.mu.Lock()
	defer h.mu.Unlock()
	row.Heads = h.rows[name].Heads
	for _, process := range row.Heads {
		if h.listeners[process] == nil {
			row.Dead = append(row.Dead, process)
		}
	}
}

func (h *lockingStore) Swap(ctx context.Context, name string, version int64, n register.Next, from, to int64) (int64, bool, error) {
	h.row <- struct{}{}
	now, ok, err := h.mapStore.Swap(ctx, name, version, n, from, to)
	<-h.row
	if ok {
		h.tell(n.Tell)
	}
	return now, ok, err
}

func (h *lockingStore) Update(ctx context.Context, name string, _ bool, f func(register.Row) (register.Next, error)) error {
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

func (h *lockingStore) tell(all []register.Message) {
	for _, m := range all {
		h.mu.Lock()
		receive := h.listeners[m.Process]
		h.mu.Unlock()
		if receive != nil {
			receive(m.Text)
		}
	}
}

// open makes stores in which every client has its own engine, as in separate processes.
func open(store func() register.Store, is enginetest.Store) func(tb testing.TB) enginetest.Store {
	return func(tb testing.TB) enginetest.Store {
		one, is := store(), is
		is.Client = func(tb testing.TB) sema.Engine { return engineOn(tb, one, nil) }
		return is
	}
}

// engineOn is an engine over a store, as each process has one.
func engineOn(tb testing.TB, store register.Store, o *register.Options) *register.Engine {
	tb.Helper()
	e, err := register.New(store, o)
	expect.OK(tb, err)
	tb.Cleanup(func() { _ = e.Close() })
	return e
}

// semaphoreOn is x on an engine, with a limit of 1.
func semaphoreOn(tb testing.TB, e sema.Engine, o *sema.Options) *sema.Semaphore {
	tb.Helper()
	return opened.Semaphore(tb, e, "x", 1, o)
}

// distantStore is a lockingStore behind a slow network.
type distantStore struct{ *lockingStore }

const distance = time.Millisecond

func (d distantStore) Read(ctx context.Context, name string) (register.Row, error) {
	time.Sleep(distance)
	defer time.Sleep(distance)
	return d.lockingStore.Read(ctx, name)
}

func (d distantStore) Swap(ctx context.Context, name string, version int64, n register.Next, from, to int64) (int64, bool, error) {
	time.Sleep(distance)
	defer time.Sleep(distance)
	return d.lockingStore.Swap(ctx, name, version, n, from, to)
}

func (d distantStore) Update(ctx context.Context, name string, first bool, f func(register.Row) (register.Next, error)) error {
	time.Sleep(distance)
	defer time.Sleep(distance)
	return d.lockingStore.Update(ctx, name, first, func(r register.Row) (register.Next, error) {
		time.Sleep(2 * distance) // the row travels to the process, and the new row back
		return f(r)
	})
}

func newPolledStore() register.Store   { return &mapStore{rows: map[string]register.Next{}} }
func newListenedStore() register.Store { return newLockingStore() }

func TestPromises(t *testing.T) {
	enginetest.Run(t, open(newListenedStore, enginetest.Store{Virtual: true}))
}

func TestPromisesWithKeep(t *testing.T) {
	enginetest.Run(t, open(newListenedStore, enginetest.Store{Virtual: true, Keep: true}))
}

func TestPromisesWithPolling(t *testing.T) {
	enginetest.Run(t, open(newPolledStore, enginetest.Store{Virtual: true}))
}

func TestPromisesOfADistantStore(t *testing.T) {
	enginetest.Run(t, open(func() register.Store { return distantStore{newLockingStore()} }, enginetest.Store{Virtual: true}))
}
