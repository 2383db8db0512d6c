package main

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"sema"
	"sema/internal/fixture/history"
)

// load is what a goroutine of a worker does until it is told to stop. One of each
// worker, long, holds some permits for several leases, so that renewals matter.
func (w *worker) load(handles []*handle, random *rand.Rand, long bool) {
	for w.pause(between(random, 5*time.Millisecond, 60*time.Millisecond)) {
		h := handles[random.IntN(len(handles))]
		what := wish{weight: 1}
		if h.about.Weights && random.IntN(2) == 0 {
			what.weight = 1 + random.IntN(h.about.Limit)
		}
		if what.key = h.key(random); what.key != "" {
			what.weight = min(what.weight, slices.Min(h.about.Caps))
		}
		what.takes = h.takes(random)
		p, o := h.get(random, what)
		if p == nil {
			continue
		}
		d := between(random, 0, 5*time.Millisecond)
		switch {
		case long && h.about.Limit > 2 && what.weight == 1 && random.IntN(8) == 0:
			d = between(random, h.about.Lease, 5*h.about.Lease/2)
		case random.IntN(3) == 0:
			d = between(random, 5*time.Millisecond, 50*time.Millisecond)
		}
		h.hold(p, o, d, h.rates(random, p, what.takes))
	}
}

// key draws the key of an acquisition: a name, or as many as there are caps at the most.
func (h *handle) key(random *rand.Rand) string {
	if h.about.Keys == 0 {
		return ""
	}
	path := make([]string, 1+random.IntN(len(h.about.Caps)))
	for i := range path {
		path[i] = fmt.Sprint("key ", random.IntN(h.about.Keys))
	}
	return strings.Join(path, history.Separator)
}

// takes draws what an acquisition wants of pools: nothing, some of one, or of several.
func (h *handle) takes(random *rand.Rand) history.Pools {
	takes := history.Pools{}
	for _, pool := range slices.Sorted(maps.Keys(h.about.Pools)) {
		if random.IntN(2) == 0 {
			takes[pool] = 1 + random.IntN(h.about.Pools[pool])
			if h.about.Rates[pool] > 0 {
				takes[pool] = 1 + takes[pool]/8
			}
		}
	}
	return takes
}

// pause waits, and reports whether to go on.
func (w *worker) pause(d time.Duration) bool {
	select {
	case <-w.stopped:
		return false
	case <-time.After(d):
		return true
	}
}

// get acquires in one of the ways there are.
func (h *handle) get(random *rand.Rand, what wish) (permit, *operation) {
	var alive time.Duration
	cancels := false
	switch random.IntN(10) {
	case 0:
		what.try, alive = true, time.Second
	case 1:
		alive = between(random, time.Millisecond, 150*time.Millisecond)
	case 2:
		alive, cancels = between(random, time.Millisecond, 200*time.Millisecond), true
	case 3:
		alive = between(random, h.about.Lease, 2*h.about.Lease)
	}
	o := h.begin(what, alive)
	ctx, cancel := context.Background(), context.CancelFunc(func() {})
	switch {
	case cancels:
		ctx, cancel = context.WithCancel(ctx)
		defer time.AfterFunc(alive, cancel).Stop()
	case alive > 0:
		ctx, cancel = context.WithTimeout(ctx, alive)
	}
	p, err := h.acquire(ctx, what)
	cancel()
	h.ended(o, p, err)
	if err != nil {
		return nil, o
	}
	return p, o
}

// rates says what the work uses of the rates that its permit takes, and now and then asks for a cooldown.
func (h *handle) rates(random *rand.Rand, p permit, takes history.Pools) (used history.Pools) {
	sp, ours := p.(*sema.Permit)
	if !ours || !h.about.Cooled {
		return nil
	}
	for _, pool := range slices.Sorted(maps.Keys(h.about.Rates)) {
		if n := takes[pool]; n > 0 && random.IntN(2) == 0 {
			if used == nil {
				used = history.Pools{}
			}
			used[pool] = random.IntN(n + 1)
			sp.Used(pool, used[pool])
		}
	}
	if random.IntN(50) == 0 {
		d := between(random, 50*time.Millisecond, 800*time.Millisecond)
		h.w.tell(history.Event{At: history.Now(), Kind: history.Cooled, Sem: h.sem, Span: int64(d)})
		sp.RetryAfter(d)
	}
	return used
}

// hold holds a permit for a while, says every few milliseconds that it does, and
// releases it. Once it is told of the loss, it holds the permit no longer.
func (h *handle) hold(p permit, o *operation, d time.Duration, used history.Pools) {
	const look = 20 * time.Millisecond
	e := history.Event{Sem: h.sem, Op: o.op}
	say := func(kind history.Kind, at int64) {
		e.At, e.Kind = at, kind
		h.w.tell(e)
	}
	for end := history.Now() + int64(d); ; {
		left := time.Duration(end - history.Now())
		if left <= 0 {
			break
		}
		time.Sleep(min(left, look))
		if e.Held = held(p); e.Held == 0 {
			break
		}
		if left > look {
			say(history.Held, e.Held)
		}
	}
	e.Held = held(p)
	e.Used = used
	say(history.Release, history.Now())
	e.Held, e.Used = 0, nil
	err := p.Release()
	e.Error, e.Text = classify(err)
	say(history.Released, history.Now())
	h.released(p)
}

// resize sets limits now and then.
func (w *worker) resize(handles []*handle, random *rand.Rand) {
	for w.pause(between(random, 500*time.Millisecond, 2*time.Second)) {
		for _, h := range handles {
			if !h.about.Resized || h.setLimit == nil {
				continue
			}
			e := history.Event{At: history.Now(), Kind: history.Limit, Sem: h.sem, Limit: max(1, h.about.Limit-2+random.IntN(5))}
			w.tell(e)
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
			err := h.setLimit(ctx, e.Limit)
			cancel()
			e.At, e.Kind = history.Now(), history.Limited
			e.Error, e.Text = classify(err)
			w.tell(e)
		}
	}
}

func between(random *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(random.Int64N(int64(most-least)))
}
