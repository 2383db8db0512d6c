package registers

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"sema"
	"sema/engines/register"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/history"
)

// world is a run. A rate of n means once in n times, 0 never; a mean time of 0 never as well.
type world struct {
	seed                                uint64
	kind, limit, processes, callers     int
	lease, margin, keep                 time.Duration
	delay, disk                         time.Duration // the longest a message takes, and the disk
	lose, late, loseNews                int
	crashes, steps, cuts, lostListeners time.Duration
	forward                             bool
	turns                               int

	vault *vault
	all   sync.WaitGroup // that ends with the run
	holds history.Holds

	mu     sync.Mutex
	failed error
	held   map[*sema.Permit]time.Time // since when it was asked for
	set    time.Time                  // when the clock was set forward: leases that were given before end early
	grants int
	trace  []string // what happened to the row, and when
}

// draw makes the world of a seed. A third of all have no faults, so that the order is judged as well.
func draw(seed uint64) *world {
	rng := rand.New(rand.NewPCG(seed, 0x7265))
	pick := func(of ...time.Duration) time.Duration { return of[rng.IntN(len(of))] }
	w := &world{
		seed: seed, held: map[*sema.Permit]time.Time{}, kind: rng.IntN(3), limit: 1 + rng.IntN(3), processes: 1 + rng.IntN(4), callers: 1 + rng.IntN(3), turns: 20,
		lease: pick(300*time.Millisecond, time.Second, 3*time.Second), margin: time.Millisecond, delay: pick(200*time.Microsecond, 2*time.Millisecond, 20*time.Millisecond),
		disk: pick(0, time.Millisecond, 20*time.Millisecond),
	}
	w.lease = max(w.lease, 100*w.delay) // or a step is not done while a ticket lives
	if rng.IntN(3) == 0 {
		w.keep = w.lease / 20
	}
	w.vault = &vault{w: w, listeners: map[string]func(string){}, rate: int64(rng.IntN(361) - 180)}
	if rng.IntN(3) == 0 {
		return w
	}
	rate := func(of ...int) int { return of[rng.IntN(len(of))] }
	w.lose, w.late, w.loseNews = rate(0, 100, 20), rate(0, 50, 10), rate(0, 5, 1)
	mean := func() time.Duration { return pick(0, 0, w.lease/2, 3*w.lease) }
	w.crashes, w.steps, w.cuts, w.lostListeners = mean(), mean(), mean(), mean()
	w.forward = rng.IntN(3) == 0
	return w
}

func (w *world) calm() bool {
	return w.lose+w.late+w.loseNews == 0 && w.crashes+w.steps+w.cuts+w.lostListeners == 0
}

// drawn returns the random numbers that somebody uses at this instant. The seed does not determine in which
// order goroutines run within an instant, so a draw depends on no earlier one.
func (w *world) drawn(who string) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(who))
	return rand.New(rand.NewPCG(w.seed^h.Sum64(), uint64(time.Now().UnixNano())))
}

func (w *world) chance(who string, n int) bool { return n > 0 && w.drawn(who).IntN(n) == 0 }

func (w *world) upTo(who string, d time.Duration) time.Duration {
	return time.Duration(w.drawn(who).Int64N(int64(d) + 1))
}

func (w *world) fail(format string, words ...any) {
	if w.failed == nil {
		w.failed = fmt.Errorf(format, words...)
	}
}

// process has an engine and a semaphore of its own.
type process struct {
	w    *world
	name string
	sem  *sema.Semaphore

	mu     sync.Mutex
	cut    time.Time
	wrote  time.Time
	silent time.Time // when it last ended to write nothing for as long as a ticket lives: it may have lost its places
	hangUp context.CancelFunc
	joined map[string]int64
}

// writes takes in that the process has written the row.
func (p *process) writes() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if now.Sub(p.wrote) >= p.w.lease*2/3 {
		p.silent = now
	}
	p.wrote = now
}

func (p *process) cutUntil() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cut
}

func (p *process) listens(hangUp context.CancelFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hangUp = hangUp
}

// run runs the world, within a bubble of synctest.
func (w *world) run(t *testing.T) {
	w.vault.began, w.vault.locked = time.Now(), make(chan struct{}, 1)
	ctx, end := context.WithCancel(t.Context())
	var engines []*register.Engine
	var processes []*process
	for i := range w.processes {
		p := &process{w: w, name: fmt.Sprint("process ", i, " "), joined: map[string]int64{}}
		var store register.Store = hears{locks{wire{w.vault, p}}}
		if w.kind > 0 {
			store = []register.Store{locks{wire{w.vault, p}}, wire{w.vault, p}}[w.kind-1]
		}
		e, err := register.New(store, &register.Options{Poll: 20 * time.Millisecond})
		if err == nil {
			p.sem, err = sema.New(e, "x", w.limit, &sema.Options{Lease: w.lease, Margin: w.margin, Keep: w.keep, Observer: sema.Observer{Queued: p.queued}})
		}
		expect.OK(t, err)
		engines, processes = append(engines, e), append(processes, p)
	}
	w.disturb(ctx, processes)
	var work sync.WaitGroup
	for _, p := range processes {
		for i := range w.callers {
			work.Go(func() { p.calls(ctx, fmt.Sprint(p.name, "caller ", i, " ")) })
		}
	}
	work.Wait()
	end() // of all faults
	w.wholly(t, processes[0].sem)
	for i, p := range processes {
		_, _ = p.sem.Close(), engines[i].Close() // what the store does not hear of ends with its lease
	}
	w.all.Wait()
	time.Sleep(time.Minute) // for what was left behind
	if err := w.holds.Check(w.limit, w.lease/6+w.lease/5+10*w.delay+4*w.disk); err != nil && w.calm() {
		w.fail("%w", err)
	}
}

// wholly takes all there is, when faults are over. By as much as the clock was set back leases last longer.
func (w *world) wholly(t *testing.T, s *sema.Semaphore) {
	w.vault.mu.Lock()
	most := 10*time.Minute - min(0, w.vault.set)
	w.vault.mu.Unlock()
	for began := time.Now(); ; {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		p, err := s.Acquire(ctx, sema.Weight(w.limit))
		cancel()
		if err == nil {
			_ = p.Release()
			return
		}
		if time.Since(began) > most {
			w.fail("wake-up: all is not to be had after %v: %w", time.Since(began), err)
			return
		}
	}
}

func (p *process) queued(q sema.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.joined[q.Permit] == 0 {
		p.joined[q.Permit] = time.Now().UnixNano()
	}
}

// calls is one caller, who acquires, holds and releases.
func (p *process) calls(ctx context.Context, who string) {
	w := p.w
	for range w.turns {
		time.Sleep(w.upTo(who+"comes", w.lease/20))
		hold := history.Hold{Call: time.Now().UnixNano(), Weight: 1}
		own, cancel := context.WithTimeout(ctx, 10*time.Minute)
		acquire := p.sem.Acquire
		switch {
		case w.chance(who+"tries", 6):
			acquire = p.sem.TryAcquire
		case w.chance(who+"hurries", 6):
			cancel()
			own, cancel = context.WithTimeout(ctx, w.upTo(who+"waits", w.lease))
		}
		permit, err := acquire(own)
		late := own.Err() != nil
		cancel()
		if err != nil {
			if late && time.Since(time.Unix(0, hold.Call)) >= 10*time.Minute {
				w.fail("wake-up: no permit after ten minutes: %w", err)
			} else if !errors.Is(err, sema.ErrEngine) && !errors.Is(err, sema.ErrBusy) && !errors.Is(err, context.DeadlineExceeded) {
				w.fail("error: %w", err)
			}
			continue
		}
		p.granted(permit, time.Unix(0, hold.Call))
		hold.Return, hold.ID, hold.Token, hold.Slot = time.Now().UnixNano(), permit.ID(), permit.Token(), -1
		p.mu.Lock()
		if hold.Joined = p.joined[hold.ID]; hold.Joined < hold.Call { // a ticket may have been another caller's before
			hold.Joined = 0
		}
		hold.Faulty = hold.Joined <= p.silent.UnixNano()
		delete(p.joined, hold.ID)
		p.mu.Unlock()
		long := w.upTo(who+"holds", w.lease/10)
		if w.chance(who+"stays", 10) && !w.calm() { // those who wait beside a permit that passes on wait for this too
			long = w.upTo(who+"holds on", 3*w.lease)
		}
		for end := time.Now().Add(long); time.Now().Before(end) && permit.Err() == nil; {
			time.Sleep(min(time.Until(end), w.upTo(who+"looks", w.lease/5)))
			w.look()
		}
		w.mu.Lock()
		delete(w.held, permit)
		w.mu.Unlock()
		hold.Release, hold.Trusted = time.Now().UnixNano(), permit.Deadline().UnixNano()
		w.holds.Add(hold)
		_ = permit.Release() // lost, now and then
	}
}

// granted takes in that somebody has a permit.
func (p *process) granted(permit *sema.Permit, called time.Time) {
	p.w.mu.Lock()
	p.w.held[permit] = called
	p.w.grants++
	p.w.mu.Unlock()
	p.w.look()
}

// look compares what is trusted at this instant with the limit, and with the row.
func (w *world) look() {
	row := w.vault.read()
	w.mu.Lock()
	defer w.mu.Unlock()
	trusted, doubt := 0, time.Now().Before(w.set.Add(2*w.lease))
	for permit, called := range w.held {
		left := time.Until(permit.Deadline())
		// Where permits and tickets pass from caller to caller, they may be older than a call.
		fresh := called.After(w.set) && w.callers == 1 && w.keep == 0
		if permit.Err() != nil || left <= 0 || doubt && !fresh {
			continue
		}
		trusted++
		// The rates of the two clocks differ by less than 1/5000, and both round.
		if has, err := row.Lease(permit.ID()); err != nil || has+has/5000+10*time.Microsecond < left {
			w.fail("loss: %s is trusted for %v, and in the row for %v; %v", permit.ID(), left, has, err)
		}
	}
	if trusted > w.limit && !doubt {
		w.fail("limit: %d are held, and the limit is %d", trusted, w.limit)
	}
}

// disturb has faults happen until ctx ends.
func (w *world) disturb(ctx context.Context, processes []*process) {
	every := func(what string, mean time.Duration, do func(p *process)) {
		if mean == 0 {
			return
		}
		w.all.Go(func() {
			for {
				timer := time.NewTimer(time.Millisecond + w.upTo(what, 2*mean))
				select {
				case <-ctx.Done():
					timer.Stop()
					return
				case <-timer.C:
				}
				do(processes[w.upTo(what+" whom", time.Duration(len(processes)-1))])
			}
		})
	}
	every("crash", w.crashes, func(*process) { w.vault.crash() })
	every("step", w.steps, func(*process) {
		by, forward := -w.upTo("step by", 5*time.Second), w.chance("step forward", 2)
		w.mu.Lock()
		if w.forward && forward {
			by = -by
			w.set = time.Now()
		}
		w.mu.Unlock()
		w.vault.mu.Lock()
		defer w.vault.mu.Unlock()
		w.vault.set = max(w.vault.set+by, -20*time.Second) // it does not run backwards
	})
	every("cut", w.cuts, func(p *process) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.cut = time.Now().Add(min(w.lease, w.cuts/2)) // or one that is always cut off waits in vain
	})
	every("loss", w.lostListeners, func(p *process) { // the store has the connection no more; half of the time it is told
		told := w.chance("told of a loss", 2)
		p.mu.Lock()
		hangUp := p.hangUp
		p.mu.Unlock()
		if told && hangUp != nil {
			hangUp()
			return
		}
		w.vault.mu.Lock()
		clear(w.vault.listeners)
		w.vault.mu.Unlock()
	})
}
