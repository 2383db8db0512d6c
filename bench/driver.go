package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"syscall"
	"time"

	"sema/internal/fixture/child"
)

// driver is the role of a process with callers of one contestant. It says "ready", and plays a turn for each order, which
// is a turn in JSON. At the order "waits" it says which waits there were.
const driver = "driver"

const waitsOrder = "waits"

// turn says when a turn begins, so that all processes begin at once, and how long it is.
type turn struct {
	From   time.Time
	Length time.Duration
}

// job is what a driver is to do.
type job struct {
	Contestant string
	Store      string // where its server is
	Name       string // of the semaphore
	Limit      int
	Process    int
	Processes  int
	Callers    int
	Light      int
	Batch      int
	Hold       time.Duration
}

// played is what a process did in a turn.
type played struct {
	Pairs int64
	Took  time.Duration
	CPU   time.Duration
}

// pair acquires, calls held, and releases.
type pair func(ctx context.Context, caller int, held func()) error

// lease is that of all permits.
const lease = 10 * time.Second

// rest is how long a light tenant rests, on average.
const rest = 50 * time.Millisecond

// histogram counts waits, to two digits of nanoseconds.
type histogram map[int64]int64

func (h histogram) add(d time.Duration) {
	unit := math.Pow10(max(0, int(math.Log10(float64(max(d, 1))))-1))
	h[int64(math.Round(float64(d)/unit)*unit)]++
}

func drive(j job) error {
	ctx := context.Background()
	open := contestants[j.Contestant].open
	if open == nil {
		return fmt.Errorf("unknown contestant %q", j.Contestant)
	}
	work, end, err := open(ctx, j)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	waits := histogram{}
	for {
		order, err := child.Order()
		if err != nil {
			return end()
		}
		var said any = waits
		if order != waitsOrder {
			var t turn
			if err := json.Unmarshal([]byte(order), &t); err != nil {
				return err
			}
			if said, err = j.turn(ctx, t, work, waits); err != nil {
				return err
			}
		}
		words, err := json.Marshal(said)
		if err != nil {
			return err
		}
		fmt.Println(string(words))
	}
}

// turn lets all callers make pairs until the time is up, and finish those that have begun. In a process beside others these
// do not count: a process that is the last has the semaphore for itself then.
func (j job) turn(ctx context.Context, t turn, work pair, waits histogram) (p played, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var mu sync.Mutex
	var all []time.Duration
	var callers sync.WaitGroup
	time.Sleep(time.Until(t.From))
	used, began := cpu(), time.Now()
	end := began.Add(t.Length)
	if j.Processes > 1 {
		end = t.From.Add(t.Length)
	}
	for caller := range j.Callers {
		callers.Go(func() {
			pairs, last, waited, failed := j.call(ctx, end, caller, work)
			mu.Lock()
			defer mu.Unlock()
			p.Pairs += pairs
			p.Took = max(p.Took, last.Sub(began))
			all = append(all, waited...)
			if err == nil && failed != nil {
				err = failed
				stop()
			}
		})
	}
	callers.Wait()
	if j.Processes > 1 {
		p.Took = t.Length
	}
	p.CPU = cpu() - used
	for _, d := range all {
		waits.add(d)
	}
	return p, err
}

// call is one caller's turn. Waits are taken only of those callers whose waits count.
func (j job) call(ctx context.Context, end time.Time, caller int, work pair) (pairs int64, last time.Time, waits []time.Duration, err error) {
	counts := j.Batch == 0 && (j.Light == 0 || caller < j.Light)
	last = time.Now()
	asked := last
	held := func() {
		if counts {
			waits = append(waits, time.Since(asked))
		}
		if j.Hold > 0 {
			time.Sleep(j.Hold)
		}
	}
	for first := true; first || last.Before(end); first = false {
		asked = last
		if caller < j.Light {
			time.Sleep(time.Duration(rand.ExpFloat64() * float64(rest)))
			asked = time.Now()
		}
		for range max(1, j.Batch) {
			if err := work(ctx, caller, held); err != nil {
				return pairs, last, waits, err
			}
		}
		if last = time.Now(); j.Processes == 1 || last.Before(end) {
			pairs += int64(max(1, j.Batch))
		}
	}
	return pairs, last, waits, nil
}

// cpu is the CPU time that the process has used.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
