package versions

import (
	"bytes"
	"os/exec"
	"testing"
	"time"

	"sema/lab/child"
	"sema/lab/history"
)

// Crew is the processes that share a semaphore. All have the same Work but for their number.
type Crew struct {
	tb    testing.TB
	work  Work
	n     int
	round history.Round
}

// NewCrew has nobody yet.
func NewCrew(tb testing.TB, w Work) *Crew {
	return &Crew{tb: tb, work: w, round: history.Round{Semaphores: []history.Semaphore{{Name: w.Name, Limit: w.Limit, Lease: Lease}}}}
}

// Member is a process of a crew.
type Member struct {
	*child.Tested
	crew   *Crew
	number int
}

// Join starts a process that serves, and waits until it has had a permit.
func (c *Crew) Join(command func(Work) *exec.Cmd) Member {
	c.tb.Helper()
	w := c.work
	w.Process = c.n
	c.n++
	m := Member{child.RunCommand(c.tb, command(w)), c, w.Process}
	m.Says("serves")
	return m
}

// Leave has the process end, and takes down what it saw.
func (m Member) Leave() {
	m.crew.tb.Helper()
	m.Tell("end")
	m.Ends()
	_, said, _ := bytes.Cut(m.Said(), []byte("\n"))
	events, err := history.Read(said)
	if err != nil {
		m.crew.tb.Fatal(err)
	}
	m.crew.round.Workers = append(m.crew.round.Workers, history.Worker{ID: m.number})
	m.crew.round.Events = append(m.crew.round.Events, events...)
}

// Judge fails the test unless all promises were kept: never too many at once, nobody lost a
// permit, everybody was served and in time. All members have left.
func (c *Crew) Judge() {
	c.tb.Helper()
	for _, b := range history.Judge(&c.round) {
		c.tb.Errorf("%+v", b)
	}
	count, calls, longest := map[history.Kind]int{}, map[[2]int64]int64{}, time.Duration(0)
	for _, e := range c.round.Events {
		count[e.Kind]++
		switch op := [2]int64{int64(e.Worker), e.Op}; e.Kind {
		case history.Call:
			calls[op] = e.At
		case history.Got:
			longest = max(longest, time.Duration(e.At-calls[op]))
		case history.Lost:
			c.tb.Errorf("process %d lost a permit: %s", e.Worker, e.Text)
		case history.Failed, history.Released:
			if e.Error != "" {
				c.tb.Errorf("process %d: %s: %s", e.Worker, e.Kind, e.Text)
			}
		}
	}
	if count[history.Got] < c.n*c.work.Limit {
		c.tb.Errorf("%d permits were granted to %d processes", count[history.Got], c.n)
	}
	c.tb.Logf("%d processes, %d permits, the longest wait %v", c.n, count[history.Got], longest)
}
