package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"sema/internal/faults/ground"
	"sema/internal/redistest"
)

// TestMain lets the test binary be a worker.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == workerArg {
		if err := runWorker(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(3)
		}
		return
	}
	os.Exit(m.Run())
}

// little is a ground of one server with proxies.
type little struct {
	server  *redistest.Server
	proxies [ground.Sites]*redistest.Proxy
}

func newLittle(t *testing.T) *little {
	l := &little{server: redistest.Start(t)}
	for i := range l.proxies {
		l.proxies[i] = redistest.StartProxy(t, l.server.Addr())
	}
	return l
}

func (l *little) Kind() string   { return "little" }
func (l *little) Server() string { return "redis" }
func (l *little) Close()         {}

func (l *little) Link(site int) ground.Link {
	return ground.Link{URL: l.server.URL(), Via: map[string]string{l.server.Addr(): l.proxies[site].Addr()}}
}

func (l *little) Settle(ctx context.Context) error {
	return l.server.Client().Set(ctx, "settled", 1, time.Second).Err()
}

func (l *little) Left(ctx context.Context) ([]string, error) {
	c := l.server.Client()
	keys, err := c.Keys(ctx, "*").Result()
	var left []string
	for _, k := range keys {
		if d, err := c.PTTL(ctx, k).Result(); err == nil && d == -1 {
			left = append(left, k)
		}
	}
	return left, err
}

func (l *little) Faults() []ground.Fault {
	at := make(chan int, 10)
	site := func(do func(*redistest.Proxy)) func(context.Context, *rand.Rand) (ground.Extent, error) {
		return func(_ context.Context, r *rand.Rand) (ground.Extent, error) {
			i := r.IntN(ground.Sites)
			do(l.proxies[i])
			at <- i
			return ground.Extent{Sites: []int{i}}, nil
		}
	}
	resume := func(context.Context) error {
		p := l.proxies[<-at]
		p.Resume()
		return nil
	}
	return []ground.Fault{
		{Name: "silence", Begin: site((*redistest.Proxy).Silence), End: resume},
		{Name: "refuse", Begin: site((*redistest.Proxy).Refuse), End: resume},
		{Name: "lost replies", Begin: site((*redistest.Proxy).LoseReplies), End: resume},
		{Name: "SIGSTOP", Alone: true, Begin: func(context.Context, *rand.Rand) (ground.Extent, error) {
			l.server.Stop()
			return ground.Extent{}, nil
		}, End: func(context.Context) error {
			l.server.Continue()
			return nil
		}},
		{Name: "kill -9", Alone: true, Excuses: ground.Excuse{Limit: true, Order: true}, Begin: func(context.Context, *rand.Rand) (ground.Extent, error) {
			l.server.Kill()
			return ground.Extent{}, nil
		}, End: func(context.Context) error {
			l.server.Restart()
			return nil
		}},
	}
}
