package redisengine_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sema"
	"sema/engines/redisengine"
	"sema/internal/fixture/child"
)

// crewRole is the role of a process that waits.
const crewRole = "redisengine crew"

func init() { child.Role(crewRole, crewJob.play) }

// crewJob is the job of such a process. On an order, its goroutines acquire
// once each, queue one after the other, and report when they were served.
type crewJob struct {
	URL     string        `json:"url"`
	Name    string        `json:"name"`
	Waiters int           `json:"waiters"`
	Lease   time.Duration `json:"lease"`
}

// served is a waiter's report after its release.
type served struct {
	at     time.Time
	token  int64
	number int // of the waiter in its process, by its place in the process's queue
	from   *crewChild
	failed string
}

func (j crewJob) play() error {
	if err := j.wait(); err != nil {
		fmt.Println("failed", err)
	}
	_, _ = child.Order() // returns when the test is done with this process
	return nil
}

func (j crewJob) wait() error {
	o, err := redis.ParseURL(j.URL)
	if err != nil {
		return err
	}
	o.ContextTimeoutEnabled = true
	rdb := redis.NewClient(o)
	defer func() { _ = rdb.Close() }()
	e, err := redisengine.New(rdb, nil)
	if err != nil {
		return err
	}
	defer func() { _ = e.Close() }()
	s, err := sema.New(e, j.Name, 1, &sema.Options{Lease: j.Lease})
	if err != nil {
		return err
	}
	ctx := context.Background()
	if _, err := s.State(ctx); err != nil { // makes the connection
		return err
	}
	fmt.Println("ready")
	if _, err := child.Order(); err != nil {
		return err
	}
	var all sync.WaitGroup
	for n := range j.Waiters {
		all.Go(func() {
			p, err := s.Acquire(ctx)
			if err != nil {
				fmt.Println("failed", err)
				return
			}
			at, token := time.Now().UnixNano(), p.Token()
			if err := p.Release(); err != nil {
				fmt.Println("failed to release:", err)
				return
			}
			fmt.Println("served", at, token, n)
		})
		if j.Waiters == 1 {
			break
		}
		for queued := 0; queued <= n; { // the next one asks after this one
			st, err := s.State(ctx)
			if err != nil {
				return err
			}
			if queued = st.Waiting(); queued <= n {
				time.Sleep(100 * time.Microsecond)
			}
		}
	}
	all.Wait()
	return s.Close()
}

// crewChild is a process with the role crewRole.
type crewChild struct{ *child.Tested }

func startCrew(t testing.TB, j crewJob) *crewChild {
	return &crewChild{child.Run(t, crewRole, j)}
}

// wait makes the process's goroutines acquire, and passes on their reports.
func (c *crewChild) wait(t testing.TB, tell chan<- served) {
	c.Says("ready")
	c.Tell("go")
	go func() {
		for {
			line, err := c.Line(context.Background())
			if err != nil { // it has ended
				return
			}
			var at int64
			s := served{from: c}
			if n, _ := fmt.Sscanf(line, "served %d %d %d", &at, &s.token, &s.number); n != 3 {
				s.failed = line
			}
			s.at = time.Unix(0, at)
			tell <- s
		}
	}()
}

// end makes the process exit normally, and returns its use of time and memory.
func (c *crewChild) end() (cpu time.Duration) {
	c.Ends()
	return c.Uses().CPU
}

// memory returns the peak memory of the process, in bytes.
func (c *crewChild) memory() int { return c.Uses().Peak }
