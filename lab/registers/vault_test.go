package registers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"sema/engine"
	"sema/engines/register"
)

// vault is the store. It has one row, which is seen before it is durable, as that of a database whose row is
// unlocked before the disk has it.
type vault struct {
	w      *world
	locked chan struct{} // full while the row is locked

	mu        sync.Mutex
	row       register.Next
	durable   register.Next
	lives     int // how often it crashed
	began     time.Time
	rate      int64 // by which its clock is fast, in parts per million
	set       time.Duration
	listeners map[string]func(string)
}

// now is what its clock shows.
func (v *vault) now() int64 {
	passed := time.Since(v.began)
	return 1_800_000_000_000_000 + (passed + passed*time.Duration(v.rate)/1_000_000 + v.set).Microseconds()
}

// read is the row, as somebody sees it.
func (v *vault) read() register.Row {
	v.mu.Lock()
	defer v.mu.Unlock()
	n := v.row
	r := register.Row{Data: n.Data, Version: n.Version, At: n.At, Now: v.now(), Heads: n.Heads}
	r.Dead = slices.DeleteFunc(slices.Clone(n.Heads), func(p string) bool { return v.listeners[p] != nil })
	return r
}

// write writes the row, if a condition holds. It returns how often the vault had crashed, and what its clock shows.
func (v *vault) write(n register.Next, if1 func(now int64) bool) (lives int, now int64, ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	now = v.now()
	if !if1(now) {
		return v.lives, now, false
	}
	if n.Version <= v.row.Version || n.At < v.row.At {
		v.w.fail("time: version %d at %d comes after version %d at %d", n.Version, n.At, v.row.Version, v.row.At)
	}
	v.row = n
	v.w.trace = append(v.w.trace, fmt.Sprint(time.Since(v.began), " ", n.Used, n.Waiting, n.Until-n.At, len(n.Tell), len(n.Heads), n.Lazy, len(n.Data)))
	return v.lives, now, true
}

// flush makes what is written durable. It reports whether that was still there.
func (v *vault) flush(lives int) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.lives == lives {
		v.durable = v.row
	}
	return v.lives == lives
}

// crash forgets what is not durable.
func (v *vault) crash() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.lives++
	v.row = v.durable
}

func (v *vault) alive(lives int) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.lives == lives
}

func (v *vault) age() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.lives
}

// tell has messages travel. Some get lost.
func (v *vault) tell(all []register.Message) {
	for _, m := range all {
		who := "news to " + m.Process
		if v.w.chance(who+" lost", v.w.loseNews) {
			continue
		}
		v.w.all.Go(func() {
			time.Sleep(v.w.upTo(who, v.w.delay))
			v.mu.Lock()
			heard := v.listeners[m.Process]
			v.mu.Unlock()
			if heard != nil {
				heard(m.Text)
			}
		})
	}
}

// wire is the vault as a process reaches it.
type wire struct {
	*vault
	p *process
}

var (
	errUnknown  = errors.New("the connection was lost")
	errUnsent   = &engine.Error{NotExecuted: true, Temporary: true, Err: errors.New("no connection")}
	errTakenOff = &engine.Error{NotExecuted: true, Temporary: true, Err: errors.New("it took too long")}
)

// travel is the way of a message of some kind, there or back.
func (x wire) travel(ctx context.Context, kind string) error {
	w, who := x.w, x.p.name+kind
	d := w.upTo(who+" takes", w.delay)
	if w.chance(who+" late", w.late) {
		d = w.upTo(who+" takes long", 2*w.lease)
	}
	if w.chance(who+" lost", w.lose) {
		return errUnknown
	}
	if cut := time.Until(x.p.cutUntil()); cut > 0 {
		d += cut
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (x wire) Read(ctx context.Context, _ string) (register.Row, error) {
	if err := x.travel(ctx, "read"); err != nil {
		return register.Row{}, err
	}
	row := x.read()
	return row, x.travel(ctx, "read")
}

func (x wire) Swap(ctx context.Context, _ string, version int64, n register.Next, from, to int64) (int64, bool, error) {
	if err := x.travel(ctx, "swap"); err != nil {
		return 0, false, err
	}
	if !x.lock(ctx) {
		return 0, false, errUnsent
	}
	lives, now, ok := x.write(n, func(now int64) bool { return x.row.Version == version && from <= now && now <= to })
	if ok {
		x.p.writes()
	}
	if ok && !n.Lazy { // the row is locked until it is durable
		time.Sleep(x.w.upTo("disk", x.w.disk))
		ok = x.flush(lives)
		if !ok {
			<-x.locked
			return 0, false, errUnknown
		}
	}
	<-x.locked
	if ok {
		x.tell(n.Tell)
	}
	return now, ok, x.travel(ctx, "swap")
}

func (x wire) lock(ctx context.Context) bool {
	select {
	case x.locked <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (x wire) Names(context.Context) ([]string, error) { return nil, nil }
func (x wire) Sweep(context.Context) error             { return nil }

// locks is a wire to a store that locks rows.
type locks struct{ wire }

func (x locks) Update(ctx context.Context, _ string, _ bool, f func(register.Row) (register.Next, error)) error {
	if err := x.travel(ctx, "update"); err != nil {
		return errUnsent
	}
	x.mu.Lock()
	before := x.now()
	x.mu.Unlock()
	if !x.lock(ctx) {
		return errUnsent
	}
	lives := x.age()
	row := x.read()
	row.Now = before // a clock that is read before the lock is there
	free := sync.OnceFunc(func() { <-x.locked })
	defer free()
	patience := time.AfterFunc(3*time.Second, free) // of the server with a transaction that is idle
	err := x.travel(ctx, "update")
	var n register.Next
	if err == nil {
		n, err = f(row)
		if err != nil {
			return err
		}
		err = x.travel(ctx, "update")
	}
	if err != nil || !patience.Stop() || !x.alive(lives) {
		return errTakenOff
	}
	_, _, _ = x.write(n, func(int64) bool { return true })
	x.p.writes()
	free()
	if !n.Lazy {
		time.Sleep(x.w.upTo("disk", x.w.disk))
		if !x.flush(lives) {
			return errUnknown
		}
	}
	x.tell(n.Tell)
	return x.travel(ctx, "update")
}

// hears is a wire to a store that can be listened to as well.
type hears struct{ locks }

func (x hears) Listen(ctx context.Context, process string, heard func(string), up, down func()) {
	for ctx.Err() == nil {
		time.Sleep(x.w.upTo(x.p.name+"listens", x.w.delay))
		life, end := context.WithCancel(ctx)
		x.p.listens(end)
		x.setListener(process, func(text string) {
			if life.Err() == nil && time.Until(x.p.cutUntil()) <= 0 {
				heard(text)
			}
		})
		up()
		<-life.Done()
		x.setListener(process, nil)
		down()
		end()
	}
}

// setListener sets the function that gets a process's notifications; nil: none.
func (v *vault) setListener(process string, f func(string)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.listeners[process] = f; f == nil {
		delete(v.listeners, process)
	}
}
