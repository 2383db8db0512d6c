package bench

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"sema/internal/measure"
)

// queue: what a hand-off costs the server while many wait.
func queue(ctx context.Context, b *bench) (Result, error) {
	r := Result{
		About: "hand-offs one after the other while others wait: who was served queues again; percentiles are from release " +
			"to grant in this process; script: the server's time in scripts, CPU: that of its main thread",
		Unit:  "hand-offs",
		Ratio: "the server's time in scripts for each hand-off over that with the fewest waiters, round by round (less is better)",
	}
	if b.Redis == nil {
		r.About = "hand-offs one after the other while others wait: who was served queues again; percentiles are from release " +
			"to grant; CPU: that of this process"
		r.Ratio = "the CPU time for each hand-off over that with the fewest waiters, round by round (less is better)"
	}
	sizes := slices.Compact(slices.Sorted(slices.Values(b.Waiters)))
	lines := make([]*line, 0, len(sizes))
	defer func() {
		b.at("queue: leaving")
		var group sync.WaitGroup
		for _, l := range lines {
			group.Go(l.close)
		}
		group.Wait()
	}()
	for _, n := range sizes {
		b.at("queue, waiters=%d", n)
		l, err := b.fill(ctx, b.name(fmt.Sprintf("queue-%d", n)), n)
		if l != nil {
			lines = append(lines, l)
		}
		if err != nil {
			return r, err
		}
	}
	b.at("queue")
	contestants := make([]measure.Contestant, len(lines))
	for i, l := range lines {
		contestants[i] = measure.Contestant{Name: fmt.Sprintf("waiters=%d", l.waiters), Do: func(ctx context.Context, _ int) (time.Duration, error) {
			return l.handOff(ctx)
		}}
	}
	m := &meter{b: b, ctx: ctx, lines: lines, current: -1, script: make([][]float64, len(lines)), cpu: make([][]float64, len(lines))}
	series, err := measure.Run(ctx, b.plan(1), contestants, func(round int, who string) {
		m.turn(slices.IndexFunc(contestants, func(c measure.Contestant) bool { return c.Name == who }))
		b.turn(round, who)
	})
	if err == nil {
		m.turn(-1)
		err = m.err
	}
	if err != nil {
		return r, err
	}
	_, measured := processCPU()
	for i, s := range series {
		next := row(s.Name, s, false).waits(s)
		next.Who = "sema"
		cost := m.cpu
		if b.Redis != nil {
			cost = m.script
			script := measure.Of(m.script[i]...)
			next.Script = &script
		}
		if b.Redis != nil || measured {
			cpu := measure.Of(m.cpu[i]...)
			next.CPU = &cpu
		}
		if i > 0 {
			ratio := measure.Of(quotients(cost[i], cost[0])...)
			next.Ratio = &ratio
		}
		r.Rows = append(r.Rows, next)
	}
	return r, nil
}

// meter reads, at every change of turns, what the hand-offs of the last one
// cost.
type meter struct {
	b       *bench
	ctx     context.Context
	lines   []*line
	current int // whose turn it is; -1: nobody's
	served  int64
	last    sample
	script  [][]float64 // microseconds for each hand-off, by line and round
	cpu     [][]float64
	err     error
}

// turn ends the current turn and begins that of another.
func (m *meter) turn(next int) {
	if m.err != nil {
		return
	}
	if i := m.current; i >= 0 {
		var now sample
		if now, m.err = m.b.sample(m.ctx, m.lines[i].name); m.err != nil {
			return
		}
		if n := m.lines[i].served.Load() - m.served; n > 0 {
			m.script[i] = append(m.script[i], float64((now.script-m.last.script).Microseconds())/float64(n))
			m.cpu[i] = append(m.cpu[i], float64((now.cpu-m.last.cpu).Microseconds())/float64(n))
		}
	}
	m.current = next
	if next >= 0 {
		m.served = m.lines[next].served.Load()
		m.last, m.err = m.b.sample(m.ctx, m.lines[next].name)
	}
}

// quotients divides figure by figure.
func quotients(a, b []float64) []float64 {
	var list []float64
	for i := range min(len(a), len(b)) {
		if b[i] > 0 {
			list = append(list, a[i]/b[i])
		}
	}
	return list
}
