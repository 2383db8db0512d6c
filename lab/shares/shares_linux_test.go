// Package shares has keys share one semaphore, among processes, and counts how often they pass each other. It
// is for Linux, where the processes of a host have one clock.
package shares

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"sema"
	"sema/engines/redisengine"
	"sema/internal/fixture/child"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/history"
	"sema/internal/fixture/redistest"
)

var worlds = flag.Int("worlds", 2, "in how many worlds, each by chance, overtakings are counted")

const (
	role      = "shares worker"
	processes = 4
	rounds    = 20 // how often each caller acquires
)

// world is who uses the semaphore, and how.
type world struct {
	URL    string
	Limit  int
	Caps   sema.Caps
	NoKeys bool // first come, first served
	Keys   []key
}

// key is one that shares.
type key struct {
	Name       string
	Callers    int // the first one in a process by the key's place, the others in those that follow
	Weight     int // of one acquisition: 1 … Weight, by chance
	Hold, Idle time.Duration
	Share      int // 0: what all have
}

// job is what a process does.
type job struct {
	world
	Process int
}

func TestMain(m *testing.M) {
	child.Role(role, work)
	child.Play()
	goleak.VerifyTestMain(m)
}

// drawn is a world by chance: keys with few callers beside one or two with many.
func drawn(seed uint64) world {
	r := rand.New(rand.NewPCG(seed, 0))
	w := world{Limit: 2 + r.IntN(9)}
	most := min(3, w.Limit)
	if r.IntN(2) == 0 {
		w.Caps[0] = 1 + r.IntN(w.Limit)
		most = min(most, w.Caps[0])
	}
	add := func(k key) {
		k.Hold = time.Duration(1+r.IntN(20)) * time.Millisecond
		if r.IntN(2) == 0 {
			k.Share = 20 + r.IntN(500)
		}
		if r.IntN(2) == 0 {
			k.Weight = 1 + r.IntN(most)
		}
		w.Keys = append(w.Keys, k)
	}
	for i := range 3 + r.IntN(8) {
		add(key{Name: fmt.Sprint("light-", i), Callers: 1 + r.IntN(4), Idle: 5 * time.Millisecond})
	}
	for _, name := range []string{"heavy", "heavier"}[:1+r.IntN(2)] {
		add(key{Name: name, Callers: 20 + r.IntN(40)})
	}
	return w
}

// No key is passed by another one more often than the bound of docs/shares.md says, among real processes on a Redis: what
// all of them wrote down is judged by package history, which knows nothing of the engine.
func TestNoKeyIsPassedMoreOftenThanTheBound(t *testing.T) {
	var all history.Turns
	for seed := range uint64(*worlds) {
		w := drawn(seed)
		r := play(t, w)
		for _, b := range history.Judge(r) {
			t.Errorf("world %d: %+v", seed, b)
		}
		turns := r.Turns(0)
		t.Logf("world %d: limit %d, caps %v, %d keys: %+v", seed, w.Limit, w.Caps, len(w.Keys), turns)
		all.Waits += turns.Waits
		all.Passed += turns.Passed
	}
	if all.Waits == 0 || all.Passed == 0 {
		t.Errorf("nothing was judged: %+v", all)
	}
}

// First come, first served breaks the bound and the caps, and the judge finds it.
func TestTheJudgeFindsKeysThatPass(t *testing.T) {
	r := play(t, world{NoKeys: true, Limit: 2, Caps: sema.Caps{1}, Keys: []key{
		{Name: "light", Callers: 4, Hold: time.Millisecond}, {Name: "heavy", Callers: 20, Hold: 2 * time.Millisecond},
	}})
	if turns := r.Turns(0); turns.Breaches == 0 || turns.Most < 3 {
		t.Errorf("a key with 20 callers did not pass another: %+v", turns)
	}
	for _, b := range history.Judge(r) {
		if b.Promise == history.PromiseLimit {
			return
		}
	}
	t.Error("more than the caps was held, and nothing found")
}

// play lets a world play, and returns what its processes wrote down.
func play(t *testing.T, w world) *history.Round {
	t.Helper()
	w.URL = redistest.Start(t).URL()
	r := &history.Round{Clock: history.Clock(), Semaphores: []history.Semaphore{{
		Name: "world", Limit: w.Limit, Lease: time.Minute, Keys: len(w.Keys), Caps: w.Caps.List(), Rules: map[string]history.Rule{},
	}}}
	e, end, err := open(w.URL)
	expect.OK(t, err)
	operator, err := sema.Operate(e, "world")
	expect.OK(t, err)
	o := sema.Rule{Limit: w.Limit, Caps: w.Caps}
	if w.NoKeys {
		o.Caps = sema.Caps{}
	}
	expect.OK(t, operator.Set(t.Context(), o))
	for _, k := range w.Keys {
		if k.Share != 0 {
			r.Semaphores[0].Rules[k.Name] = history.Rule{Share: k.Share}
			expect.OK(t, operator.Set(t.Context(), sema.Rule{Share: k.Share}, k.Name))
		}
	}
	expect.OK(t, errors.Join(operator.Close(), end()))
	var all []*child.Process
	for i := range processes {
		r.Workers = append(r.Workers, history.Worker{ID: i})
		cmd, err := child.Command(role, job{w, i})
		expect.OK(t, err)
		p, err := child.Start(cmd)
		expect.OK(t, err)
		defer p.Kill()
		all = append(all, p)
		if line, err := p.Line(t.Context()); err != nil || line != "ready" {
			t.Fatalf("process %d says %q: %v", i, line, err)
		}
	}
	for _, p := range all {
		expect.OK(t, p.Order("go"))
	}
	for _, p := range all {
		expect.OK(t, p.Wait(t.Context()))
		events, err := history.Read(p.Said()[len("ready\n"):])
		expect.OK(t, err)
		r.Events = append(r.Events, events...)
	}
	return r
}

func open(url string) (e sema.Engine, end func() error, err error) {
	o, err := redis.ParseURL(url)
	if err != nil {
		return nil, nil, err
	}
	rdb := redis.NewClient(o)
	if e, err = redisengine.New(rdb, nil); err != nil {
		return nil, nil, errors.Join(err, rdb.Close())
	}
	return e, func() error { return errors.Join(e.Close(), rdb.Close()) }, nil
}

// worker is a process of a world.
type worker struct {
	job
	sem    *sema.Semaphore
	ops    atomic.Int64
	queued sync.Map // when a permit was first known to wait, by id
	log    history.Log
}

func work(j job) error {
	e, end, err := open(j.URL)
	if err != nil {
		return err
	}
	w := &worker{job: j}
	o := &sema.Options{Lease: time.Minute, Observer: sema.Observer{Queued: func(q sema.Event) { w.queued.LoadOrStore(q.Permit, history.Now()) }}}
	if !j.NoKeys {
		o.Caps = j.Caps
	}
	if w.sem, err = sema.New(e, "world", j.Limit, o); err != nil {
		return err
	}
	fmt.Println("ready")
	if _, err := child.Order(); err != nil {
		return err
	}
	var all sync.WaitGroup
	var failed atomic.Value
	for i, k := range w.Keys {
		for c := range k.Callers {
			if (i+c)%processes == w.Process {
				all.Go(func() {
					if err := w.caller(k, rand.New(rand.NewPCG(uint64(i), uint64(c)))); err != nil {
						failed.Store(err)
					}
				})
			}
		}
	}
	all.Wait()
	if err, _ := failed.Load().(error); err != nil {
		return err
	}
	return errors.Join(w.sem.Close(), end(), w.log.Write(os.Stdout))
}

// caller acquires, holds and gives back, again and again.
func (w *worker) caller(k key, r *rand.Rand) error {
	options := []sema.AcquireOption{sema.For(k.Name)}
	if w.NoKeys {
		options = nil
	}
	for range rounds {
		time.Sleep(time.Duration(r.ExpFloat64() * float64(k.Idle)))
		weight := 1 + r.IntN(max(1, k.Weight))
		op := w.ops.Add(1)
		say := func(e history.Event) {
			e.Worker, e.Op = w.Process, op
			w.log.Note(e)
		}
		called := history.Now()
		say(history.Event{At: called, Kind: history.Call, Key: k.Name, Weight: weight})
		p, err := w.sem.Acquire(context.Background(), append(options, sema.Weight(weight))...)
		if err != nil {
			return err
		}
		got := history.Now()
		say(history.Event{At: got, Kind: history.Got, Permit: p.ID(), Token: p.Token(), Held: got})
		if at, ok := w.queued.LoadAndDelete(p.ID()); ok && at.(int64) > called { // it may have been another caller's before
			say(history.Event{At: at.(int64), Kind: history.Queued})
		}
		time.Sleep(k.Hold)
		ends := history.Now()
		say(history.Event{At: ends, Kind: history.Release, Held: ends})
		if err := p.Release(); err != nil {
			return err
		}
		say(history.Event{At: history.Now(), Kind: history.Released})
	}
	return nil
}
