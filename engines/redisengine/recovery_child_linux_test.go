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

// crewRole is that of a process that waits.
const crewRole = "redisengine crew"

func init() { child.Role(crewRole, crewJob.play) }

// crewJob is what such a process does: when it is told to, so many goroutines
// acquire once each, one after the other, and say when they were served.
type crewJob struct {
	URL     string        `json:"url"`
	Name    string        `json:"name"`
	Waiters int           `json:"waiters"`
	Lease   time.Duration `json:"lease"`
}

// served is what a waiter says when it has released.
type served struct {
	at     time.Time
	token  int64
	number int // of the waiter within its process, in the order of its queue
	from   *crewChild
	failed string
}

func (j crewJob) play() error {
	if err := j.wait(); err != nil {
		fmt.Println("failed", err)
	}
	_, _ = child.Order() // none: the end, when the test has seen what it wants of this process
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
	if _, err := s.State(ctx); err != nil { // so that the connection is there
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
		for queued := 0; queued <= n; { // the next one comes after this one
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

// crewChild is such a process.
type crewChild struct{ *child.Tested }

func startCrew(t testing.TB, j crewJob) *crewChild {
	return &crewChild{child.Run(t, crewRole, j)}
}

// wait has the process's goroutines acquire, and passes on what they say.
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

// end has the process end by itself, and says what it has used.
func (c *crewChild) end() (cpu time.Duration) {
	c.Ends()
	return c.Uses().CPU
}

// memory is the most that the process has had at once, in bytes.
func (c *crewChild) memory() int { return c.Uses().Peak }
