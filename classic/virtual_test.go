package classic

import (
	"container/heap"
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// world is virtual time. Goroutines take turns in it: one runs at a time. When
// all sleep, time jumps to the one that wakes first. Redis is a real one; the
// network between it and the callers is virtual. So a run is the same each time,
// and takes no longer than its requests.
type world struct {
	now  time.Duration
	wait sleepers
	turn int // ties wake in the order they fell asleep
	done chan struct{}
}

type sleeper struct {
	at   time.Duration
	turn int
	wake chan struct{}
}

// run starts the actors and returns when all have.
func (w *world) run(actors ...func()) {
	w.done = make(chan struct{})
	for _, actor := range actors {
		wake := w.enqueue(0)
		go func() {
			<-wake
			actor()
			w.next()
		}()
	}
	w.next()
	<-w.done
}

// sleep lets the others run for d of virtual time.
func (w *world) sleep(d time.Duration) {
	wake := w.enqueue(d)
	w.next()
	<-wake
}

func (w *world) enqueue(d time.Duration) chan struct{} {
	w.turn++
	wake := make(chan struct{}, 1)
	heap.Push(&w.wait, sleeper{w.now + d, w.turn, wake})
	return wake
}

func (w *world) next() {
	if len(w.wait) == 0 {
		close(w.done)
		return
	}
	s := heap.Pop(&w.wait).(sleeper)
	w.now = s.at
	s.wake <- struct{}{}
}

// clock is the clock of a machine that is ahead of the world's time.
func (w *world) clock(ahead time.Duration) func() time.Time {
	start := newHandClock().t
	return func() time.Time { return start.Add(w.now + ahead) }
}

type sleepers []sleeper

func (s sleepers) Len() int      { return len(s) }
func (s sleepers) Swap(i, j int) { s[i], s[j] = s[j], s[i] }
func (s sleepers) Less(i, j int) bool {
	return s[i].at < s[j].at || s[i].at == s[j].at && s[i].turn < s[j].turn
}
func (s *sleepers) Push(x any) { *s = append(*s, x.(sleeper)) }
func (s *sleepers) Pop() any {
	last := (*s)[len(*s)-1]
	*s = (*s)[:len(*s)-1]
	return last
}

// network is a go-redis hook that calls leg before and after each request, for
// the way there and the way back. It does nothing while leg is nil.
type network struct{ leg func() }

func (n *network) DialHook(next redis.DialHook) redis.DialHook { return next }

func (n *network) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if n.leg == nil {
			return next(ctx, cmd)
		}
		n.leg()
		defer n.leg()
		return next(ctx, cmd)
	}
}

func (n *network) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if n.leg == nil {
			return next(ctx, cmds)
		}
		n.leg()
		defer n.leg()
		return next(ctx, cmds)
	}
}
