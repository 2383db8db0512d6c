package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"

	"sema/internal/fixture/child"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/history"
	"sema/internal/fixture/redistest"
	"sema/internal/fixture/stall"
	"sema/lab/faults"
	"sema/lab/faults/ground"
)

// TestMain lets the test binary be the program: what is started as a worker, or
// as the runner, whose job is its arguments.
func TestMain(m *testing.M) {
	logging.Disable()
	child.Role(runnerRole, func(args []string) error {
		os.Args = append(os.Args[:1], args...)
		os.Exit(run())
		return nil
	})
	child.Role(workerRole, job.play)
	child.Play()
	goleak.VerifyTestMain(redistest.Settled(m))
}

const runnerRole = "runner"

// TestRoundsOfEachKindOfEngine plays a short round on each.
func TestRoundsOfEachKindOfEngine(t *testing.T) {
	for _, kind := range []string{"standalone", "file", "postgres"} {
		t.Run(kind, func(t *testing.T) {
			if testing.Short() {
				t.Skip("it takes processes")
			}
			t.Parallel()
			// The judge knows stalls of workers and of the host, but not that a server
			// had to wait for a processor.
			stall.Run(t, func(c *stall.Case) { playOne(c, kind) })
		})
	}
}

// playOne plays a round. What no time explains counts at once.
func playOne(c *stall.Case, kind string) {
	out := c.TempDir() + "/faults.json"
	var log strings.Builder
	p := &player{newGround: ground.New, log: &log, settings: settings{
		grounds: []string{kind}, total: time.Hour, rounds: 1, seed: smokeSeed, fault: faults.Mixed,
		parallel: 1, long: 3 * time.Second, out: out, dir: c.TempDir(),
	}}
	if status := p.play(c.Context()); status != 0 {
		c.Errorf("status %d: %s", status, log.String())
	}
	results, err := faults.ReadResults(out)
	if err != nil || len(results) != 1 {
		c.Fatalf("%v, %v", results, err)
	}
	r := results[0]
	for _, b := range r.Breaches {
		if b.Excused == "" && slices.Contains([]string{history.PromiseLimit, history.PromiseTokens, history.PromiseLeak}, b.Promise) {
			c.Broken("%+v", b)
		}
	}
	if r.Load.Grants == 0 || len(r.Faults) == 0 || r.Server == "" {
		c.Errorf("nothing happened: %+v", r)
	}
}

// smokeSeed is one whose leases are short, with paths, and with pools beside them.
const smokeSeed = 21780

func TestPlanFollowsFromTheSeed(t *testing.T) {
	list := workerFaults(&crew{lease: time.Second})
	plans := map[string]int{}
	for _, seed := range []uint64{1, 2, 1, 2} {
		p := makePlan(seed, nil)
		expect.OK(t, p.addFaults("", list))
		text := fmt.Sprintf("%+v %+v %s", p.semaphores, p.jobs, p.fault)
		for _, s := range p.steps {
			for _, o := range s.faults {
				text += fmt.Sprint(o.fault.Name, o.after, o.lasts, o.seed)
			}
		}
		plans[text]++
	}
	if len(plans) != 2 {
		t.Errorf("%d plans of 2 seeds", len(plans))
	}
}

func TestEachFaultHasItsTurn(t *testing.T) {
	list := workerFaults(&crew{lease: time.Second})
	alone := map[string]bool{}
	for seed := range uint64(2 * len(list)) {
		p := makePlan(seed, nil)
		expect.OK(t, p.addFaults("", list))
		alone[p.fault] = true
	}
	for _, f := range list {
		if !alone[f.Name] {
			t.Errorf("no round has %q alone", f.Name)
		}
	}
	if !alone[faults.Mixed] {
		t.Error("no round has faults mixed")
	}
	if err := makePlan(1, nil).addFaults("no such fault", list); err == nil {
		t.Error("an unknown fault is played")
	}
}
