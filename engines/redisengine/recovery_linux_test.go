package redisengine_test

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sema"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
)

// The server is killed, or stopped, while many wait: afterwards all are served,
// and nobody spins. They are served in order if the permit is released after all
// have subscribed again; a waiter without a subscription is passed over.
// SEMA_RECOVERY=1000,10000 measures it with so many processes, and so many
// goroutines of one.
func TestRecoveryUnderMany(t *testing.T) {
	processes, goroutines, outage := recoverySize(t)
	withData := []string{"--appendonly", "yes"}
	for _, c := range []struct {
		what    string
		stopped bool
		args    []string
		later   bool // the permit is released when all waiters have subscribed again
	}{
		{"killed, with its data, released meanwhile", false, withData, false},
		{"killed, with its data, released when all are back", false, withData, true},
		{"killed, with its data and tcp-backlog 4096, released when all are back", false, append(withData, "--tcp-backlog", "4096"), true},
		{"killed, without data", false, nil, false},
		{"stopped, released meanwhile", true, nil, false},
		{"stopped, released when all are back", true, nil, true},
	} {
		strike, repair := (*redistest.Server).Kill, (*redistest.Server).Restart
		if c.stopped {
			strike, repair = (*redistest.Server).Stop, (*redistest.Server).Continue
		}
		for _, crew := range []struct {
			what               string
			processes, waiters int
		}{{"processes", processes, 1}, {"goroutines", 1, goroutines}} {
			if crew.processes == 1 && c.later { // a single process has two tickets: nothing to overtake
				continue
			}
			t.Run(crew.what+"/"+c.what, func(t *testing.T) {
				if os.Getenv("SEMA_RECOVERY") == "" { // measurements run alone
					t.Parallel()
				}
				r := newRecovery(t, crew.processes, crew.waiters, c.args)
				strike(r.server)
				var releasing sync.WaitGroup
				release := func() {
					releasing.Go(func() { _ = r.gate.Release() }) // may return an error; the release is sent when the server is back
				}
				if !c.later {
					release()
				}
				time.Sleep(outage) // the fault's duration
				r.back = time.Now()
				repair(r.server)
				if !c.stopped {
					r.before = load{} // a new process counts from 0
				}
				if c.later {
					r.watch("listening", r.listening)
					r.t.Logf("all %d listen again %v after the server is back", r.n, time.Since(r.back).Round(time.Millisecond))
					release()
				}
				r.watch("being served", func() bool { return len(r.all) == r.n })
				releasing.Wait()
				r.report(fmt.Sprintf("%d %s, server away for %v", crew.processes*crew.waiters, crew.what, outage), c.what)
				if n := r.overtaken(); n > 0 && (c.later || crew.processes == 1) {
					t.Errorf("%d were overtaken", n)
				}
			})
		}
	}
}

// recoverySize returns the number of waiters, and how long the server is away.
func recoverySize(t *testing.T) (processes, goroutines int, outage time.Duration) {
	words := os.Getenv("SEMA_RECOVERY")
	if words == "" {
		return 10, 300, 2 * time.Second
	}
	if n, err := fmt.Sscanf(words, "%d,%d", &processes, &goroutines); n != 2 {
		t.Fatalf("SEMA_RECOVERY=%s: %v; want processes,goroutines", words, err)
	}
	return processes, goroutines, 5 * time.Second
}

// recovery is one run.
type recovery struct {
	t      *testing.T
	server *redistest.Server
	rdb    *redis.Client
	crew   []*crewChild
	gate   *sema.Permit
	place  map[int]int // by process: its place in the queue before the fault
	tell   chan served
	all    []served
	n      int

	back          time.Time // when the server came back
	before, after load
	peak          load // the most in any second
	memory        int  // of the server, the largest value seen
}

// load counts the server's work so far.
type load struct {
	connections, steps, subscriptions, hellos, memory int
	cpu                                               time.Duration
}

func newRecovery(t *testing.T, processes, waiters int, args []string) *recovery {
	r := &recovery{t: t, n: processes * waiters, tell: make(chan served, processes*waiters), place: map[int]int{}}
	if len(args) > 0 {
		r.server = redistest.Start(t, args...)
	} else {
		r.server = redistest.Start(t)
	}
	r.rdb = r.server.Client()
	s := openSem(t, engineAt(t, r.server.Addr()), "x", 1, nil)
	r.gate = acquire(t, s)
	j := crewJob{URL: r.server.URL(), Name: "x", Waiters: waiters, Lease: 30 * time.Second}
	for range processes {
		r.crew = append(r.crew, startCrew(t, j))
	}
	for i, c := range r.crew { // each starts after the one before waits, so their order is certain
		c.wait(t, r.tell)
		r.place[c.PID()] = i
		expect.Until(t, "queueing", func() bool { return stateOf(t, s).Waiting() >= (i+1)*waiters })
	}
	r.before = r.load()
	return r
}

// load reads the server's counters.
func (r *recovery) load() (l load) {
	ctx, cancel := context.WithTimeout(context.Background(), expect.Patience)
	defer cancel()
	info := map[string]string{}
	for _, section := range []string{"stats", "cpu", "memory", "commandstats"} {
		text, err := r.rdb.Info(ctx, section).Result()
		expect.OK(r.t, err)
		for line := range strings.Lines(text) {
			if key, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
				info[key] = value
			}
		}
	}
	number := func(key string) int { n, _ := strconv.Atoi(info[key]); return n }
	calls := func(command string) (n int) {
		_, _ = fmt.Sscanf(info["cmdstat_"+command], "calls=%d", &n)
		return n
	}
	for _, part := range []string{"used_cpu_user", "used_cpu_sys"} {
		seconds, _ := strconv.ParseFloat(info[part], 64)
		l.cpu += time.Duration(seconds * 1e9)
	}
	l.connections, l.memory = number("total_connections_received"), number("used_memory")
	l.steps, l.subscriptions, l.hellos = calls("evalsha")+calls("eval"), calls("subscribe"), calls("hello")
	return l
}

func (l load) since(b load) load {
	return load{
		connections: l.connections - b.connections, steps: l.steps - b.steps, subscriptions: l.subscriptions - b.subscriptions,
		hellos: l.hellos - b.hellos, memory: l.memory, cpu: l.cpu - b.cpu,
	}
}

// listening reports whether all waiters are in the queue and have
// subscriptions.
func (r *recovery) listening() bool {
	ctx, cancel := context.WithTimeout(context.Background(), expect.Patience)
	defer cancel()
	list, err := r.rdb.Do(ctx, "CLIENT", "LIST", "TYPE", "pubsub").Text()
	expect.OK(r.t, err)
	channels, err := r.rdb.PubSubChannels(ctx, "*").Result()
	expect.OK(r.t, err)
	queued, err := r.rdb.ZCard(ctx, "sema:{x}:waiters").Result()
	expect.OK(r.t, err)
	return strings.Count(list, "\n") == r.n && len(channels) == r.n && int(queued) == r.n
}

// watch collects the reports of the waiters, and samples the server's load,
// until done.
func (r *recovery) watch(what string, done func() bool) {
	last := r.load()
	at := time.Now()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	end := time.After(5 * time.Minute)
	for !done() {
		select {
		case s := <-r.tell:
			if s.failed != "" {
				r.t.Fatalf("a waiter: %s", s.failed)
			}
			r.all = append(r.all, s)
			continue
		case <-tick.C:
		case <-end:
			r.t.Fatalf("%s: not in time; %d of %d were served", what, len(r.all), r.n)
		}
		l := r.load()
		now := time.Now()
		took, d := now.Sub(at).Seconds(), l.since(last)
		r.peak.connections = max(r.peak.connections, int(float64(d.connections)/took))
		r.peak.steps = max(r.peak.steps, int(float64(d.steps)/took))
		r.peak.cpu = max(r.peak.cpu, time.Duration(float64(d.cpu)/took))
		r.memory = max(r.memory, l.memory)
		at, last = now, l
	}
	l := r.load()
	r.memory = max(r.memory, l.memory)
	r.after = l.since(r.before)
}

// overtaken counts the waiters that were served after somebody behind them.
func (r *recovery) overtaken() (n int) {
	slices.SortFunc(r.all, func(a, b served) int { return cmp.Compare(a.token, b.token) })
	most := -1
	for _, s := range r.all {
		place := s.number
		if len(r.crew) > 1 {
			place = r.place[s.from.PID()]
		}
		if place < most {
			n++
		}
		most = max(most, place)
	}
	return n
}

func (r *recovery) report(who, fault string) {
	first, last := r.all[0].at, r.all[0].at
	for _, s := range r.all {
		if s.at.Before(first) {
			first = s.at
		}
		if s.at.After(last) {
			last = s.at
		}
	}
	var most, sum int
	var cpu time.Duration
	var ends sync.WaitGroup
	var mu sync.Mutex
	for _, c := range r.crew {
		m := c.memory()
		most, sum = max(most, m), sum+m
		ends.Go(func() {
			used := c.end()
			mu.Lock()
			defer mu.Unlock()
			cpu += used
		})
	}
	ends.Wait()
	took := last.Sub(r.back)
	millis := func(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
	r.t.Logf("%s, %s: first grant %v after it is back, all served after %v, %d of %d overtaken",
		who, fault, millis(first.Sub(r.back)), millis(took), r.overtaken(), r.n)
	r.t.Logf("  of the server until then: %d connections (most in a second %d), %d steps (%d), %d subscriptions, CPU %v (%d %% of a core), memory %.1f MB",
		r.after.connections, r.peak.connections, r.after.steps, r.peak.steps, r.after.subscriptions, millis(r.after.cpu), r.peak.cpu*100/time.Second, float64(r.memory)/1e6)
	r.t.Logf("  of the processes, from start to end: at most %.1f MB each, %.1f MB in all, CPU %v", float64(most)/1e6, float64(sum)/1e6, millis(cpu))

	// A waiter asks, connects and subscribes a few times; it does not spin.
	perSecond := 10 * took.Seconds()
	clients := float64(len(r.crew))
	if most := clients*(20+perSecond) + 5*float64(r.n); float64(r.after.steps) > most {
		r.t.Errorf("%d steps for %d waiters in %v", r.after.steps, r.n, took)
	}
	if most := clients * (10 + perSecond); float64(r.after.connections) > most+20 {
		r.t.Errorf("%d connections for %d processes in %v", r.after.connections, len(r.crew), took)
	}
}
