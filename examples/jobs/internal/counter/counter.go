// Package counter counts the jobs of an example: how many are worked on at once, of
// each type and in all.
package counter

import (
	"context"
	"fmt"
	"io"
	"sync"
)

// Counter counts. The zero value is ready.
type Counter struct {
	mu    sync.Mutex
	types map[string]*count
	all   count
	done  chan struct{} // closed when so many have ended
	want  int
}

type count struct{ now, most, done int }

func (n *count) begin() { n.now++; n.most = max(n.most, n.now) }
func (n *count) end(failed bool) {
	n.now--
	if !failed {
		n.done++
	}
}

// Work works on a job of a type. One whose work fails is not done.
func (c *Counter) Work(name string, work func() error) error {
	of := c.begin(name)
	err := work()
	c.mu.Lock()
	defer c.mu.Unlock()
	of.end(err != nil)
	c.all.end(err != nil)
	if c.done != nil && c.all.done == c.want {
		close(c.done)
	}
	return err
}

func (c *Counter) begin(name string) *count {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.types == nil {
		c.types = map[string]*count{}
	}
	if c.types[name] == nil {
		c.types[name] = &count{}
	}
	of := c.types[name]
	of.begin()
	c.all.begin()
	return of
}

// Await waits until n jobs are done.
func (c *Counter) Await(ctx context.Context, n int) error {
	done := make(chan struct{})
	c.mu.Lock()
	if c.all.done < n {
		c.done, c.want = done, n
	} else {
		close(done)
	}
	c.mu.Unlock()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		c.mu.Lock()
		defer c.mu.Unlock()
		return fmt.Errorf("%d of %d jobs done: %w", c.all.done, n, ctx.Err())
	}
}

// Say says how many jobs of a type are done, and that no more than the limit were
// worked on at once. It fails if there were more.
func (c *Counter) Say(out io.Writer, name string, limit int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.types[name]
	if name == "in all" {
		n = &c.all
	}
	if n.most > limit {
		return fmt.Errorf("%s: %d at once", name, n.most)
	}
	_, err := fmt.Fprintf(out, "%s: %d done, never more than %d at once\n", name, n.done, limit)
	return err
}
