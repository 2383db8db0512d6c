// Command real has processes share a semaphore on Redis whose limit adapts, and call an
// HTTP server that refuses beyond a capacity, which changes. It fails if they use less
// of the capacity than is promised, or are refused more.
//
//	bin/lab-adaptive-real -phase 3m -out lab/adaptive/real.json
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"sema"
	"sema/engines/redisengine"
	"sema/internal/fixture/child"
	"sema/internal/fixture/local"
	"sema/lab/page"
	"sema/semahttp"
)

const (
	name     = "vendor"
	smallest = 2
	largest  = 200
	begins   = 10
)

// job is what a process is told.
type job struct {
	Network, Redis, Vendor string
	Callers                int
}

func init() { child.Role("caller", call) }

func connect(network, addr string) (e *redisengine.Engine, done func(), err error) {
	rdb := redis.NewClient(&redis.Options{Network: network, Addr: addr, ContextTimeoutEnabled: true})
	e, err = redisengine.New(rdb, nil)
	return e, func() { _ = rdb.Close() }, err
}

// call is a process: its callers call the vendor as often as the semaphore lets them,
// until there are no more orders.
func call(j job) error {
	e, done, err := connect(j.Network, j.Redis)
	if err != nil {
		return err
	}
	defer done()
	s, err := sema.New(e, name, begins, &sema.Options{Adapt: &sema.Adapt{Min: smallest, Max: largest}})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	client := &http.Client{Transport: &semahttp.Transport{Limit: func(*http.Request) semahttp.Limiter { return semahttp.Of(s) }}}
	var all sync.WaitGroup
	for range j.Callers {
		all.Go(func() {
			for ctx.Err() == nil {
				r, err := http.NewRequestWithContext(ctx, http.MethodGet, j.Vendor, nil)
				if err != nil {
					return
				}
				if resp, err := client.Do(r); err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}
			}
		})
	}
	fmt.Println("calls")
	_, _ = child.Order() // or the end of all orders
	stop()
	all.Wait()
	return s.Close()
}

func main() {
	child.Play()
	processes := flag.Int("processes", 20, "how many processes")
	callers := flag.Int("callers", 6, "how many callers each has")
	phase := flag.Duration("phase", 3*time.Minute, "how long each capacity lasts; its last third is measured, a minute at the most")
	out := flag.String("out", "", "write what was seen to this file")
	flag.Parse()
	seen, err := run(*processes, *callers, *phase)
	if err == nil && *out != "" {
		err = page.Save(*out, seen, "\t")
	}
	if err == nil {
		err = seen.judge()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run plays all phases.
func run(processes, callers int, phase time.Duration) (*Seen, error) {
	server, err := local.Redis(context.Background())
	if err != nil {
		return nil, err
	}
	defer server.Stop()
	v, err := newVendor()
	if err != nil {
		return nil, err
	}
	defer v.close()
	e, done, err := connect("unix", server.Address)
	if err != nil {
		return nil, err
	}
	defer done()
	op, err := sema.Operate(e, name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = op.Close() }()

	seen := &Seen{Processes: processes, Callers: callers}
	capacities := []int{8, 40, 12}
	v.set(capacities[0])
	for range processes {
		cmd, err := child.Command("caller", job{"unix", server.Address, v.url, callers})
		if err != nil {
			return nil, err
		}
		p, err := child.Start(cmd)
		if err != nil {
			return nil, err
		}
		defer p.Kill()
	}
	began, measured := time.Now(), min(time.Minute, phase/3)
	for i, capacity := range capacities {
		v.set(capacity)
		var before tally
		for end := time.Duration(i+1) * phase; time.Since(began) < end; time.Sleep(time.Second) {
			st, err := op.State(context.Background())
			if err != nil && !strings.Contains(err.Error(), "no such") {
				return nil, err
			}
			seen.Samples = append(seen.Samples, Sample{time.Since(began).Seconds(), st.Limit, capacity, v.now().Busy})
			if end-time.Since(began) <= measured && before.at.IsZero() {
				before = v.now()
			}
		}
		p := v.now().since(before, capacity)
		seen.Phases = append(seen.Phases, p)
		fmt.Printf("capacity %d: %.3f of it used, %.3f of the time held refused, %d of %d calls\n", p.Capacity, p.Used, p.Refused, p.Refusals, p.Calls)
	}
	return seen, nil
}
