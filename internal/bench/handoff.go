package bench

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"sema"
	"sema/internal/measure"
)

// answerTime bounds the wait for the other process.
const answerTime = 30 * time.Second

// handOff: from the call of Release here to the return of Acquire in another
// process, and in turn the baseline between the same two.
func handOff(ctx context.Context, b *bench) (Result, error) {
	r := Result{
		About: "from the call of Release to the return of Acquire in another process; limit 1, one waiter",
		Unit:  "hand-offs",
		Ratio: "sema's median over the baseline's, round by round; likewise of the 99th percentiles (less is better)",
	}
	name := b.name("hand-off")
	sems, closing, err := b.open([]string{name}, 1, sema.Options{})
	defer closing()
	if err != nil {
		return r, err
	}
	var other *partner
	baseline := "PUBLISH to receive"
	if b.Process == nil {
		r.About = "from the call of Release to the return of Acquire in another goroutine; limit 1, one waiter"
		baseline = aChannel
		other = b.thread(ctx, name)
	} else {
		if b.Redis == nil {
			baseline = "pipe write to read"
		}
		if other, err = b.process(name); err != nil {
			return r, err
		}
	}
	series, err := b.alternate(ctx, sems[0], other, name)
	if failed := other.close(); failed != nil {
		err = failed // why it ended early
	}
	if err != nil {
		return r, err
	}
	series[0].Name, series[1].Name = "sema", baseline
	r.Rows = []Row{{Who: "sema", Count: series[0].Done()}, {Who: baseline, Baseline: true, Count: series[1].Done()}}
	for i, s := range series {
		r.Rows[i] = r.Rows[i].waits(s)
	}
	p50, p99 := ratioOfWaits(series[0], series[1], 50), ratioOfWaits(series[0], series[1], 99)
	r.Rows[1].Ratio, r.Rows[1].RatioP99 = &p50, &p99
	return r, nil
}

// ratioOfWaits is the spread of a's quantile over b's, taken round by round.
func ratioOfWaits(a, b measure.Series, quantile float64) measure.Spread {
	var ratios []float64
	for i := range min(len(a.Rounds), len(b.Rounds)) {
		ratios = append(ratios, float64(a.Rounds[i].Waits.ValueAtQuantile(quantile))/float64(b.Rounds[i].Waits.ValueAtQuantile(quantile)))
	}
	return measure.Of(ratios...)
}

// alternate does a hand-off and a message of the baseline in turns, for all
// rounds.
func (b *bench) alternate(ctx context.Context, s *sema.Semaphore, other *partner, name string) ([2]measure.Series, error) {
	var series [2]measure.Series
	if _, err := other.expect(ctx, sayReady); err != nil {
		return series, err
	}
	p, err := s.Acquire(ctx)
	if err != nil {
		return series, err
	}
	one := []func() (int64, error){
		func() (took int64, err error) {
			took, p, err = other.handOff(ctx, s, p)
			return took, err
		},
		func() (int64, error) { return other.message(ctx, b, name) },
	}
	for round := -1; round < b.Rounds; round++ { // the first is the warm-up
		length := b.Round
		if round < 0 {
			length = b.Warmup
		} else {
			b.turn(round, "both")
		}
		now := [2]measure.Round{{Waits: measure.NewHistogram()}, {Waits: measure.NewHistogram()}}
		end := time.Now().Add(length)
		for now[0].Done == 0 || time.Now().Before(end) {
			for i := range one {
				began := time.Now()
				took, err := one[i]()
				if err != nil {
					return series, err
				}
				now[i].Done++
				now[i].Elapsed += time.Since(began)
				_ = now[i].Waits.RecordValue(max(100, took)) // answerTime is in range
			}
		}
		for i := range now {
			if round >= 0 {
				series[i].Rounds = append(series[i].Rounds, now[i])
			}
		}
	}
	return series, p.Release()
}

// partner is the other side of the hand-offs.
type partner struct {
	send  io.WriteCloser
	lines <-chan string // what it said
	pings chan struct{} // the way to a goroutine of this process
	wait  func() error  // for its end, after send was closed
}

// thread starts the other side as goroutines of this process, on the same
// engine.
func (b *bench) thread(ctx context.Context, name string) *partner {
	in, send := io.Pipe()
	said, out := io.Pipe()
	pings := make(chan struct{})
	done := make(chan error, 1)
	go func() {
		err := peer(ctx, b.Target, name, in, out, pings)
		_ = in.Close()
		_ = out.Close()
		done <- err
	}()
	o := &partner{send: send, lines: read(said), pings: pings}
	o.wait = func() error {
		o.drain()
		return <-done
	}
	return o
}

// process starts the other side as a process of its own.
func (b *bench) process(name string) (*partner, error) {
	cmd, err := b.Process(name)
	if err != nil {
		return nil, err
	}
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	send, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	said, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start another process: %w", err)
	}
	o := &partner{send: send, lines: read(said)}
	o.wait = func() error {
		kill := time.AfterFunc(closeTime, func() { _ = cmd.Process.Kill() })
		defer kill.Stop()
		o.drain() // Wait would close what is being read
		err := cmd.Wait()
		if said := strings.TrimSpace(complaint.String()); err != nil && said != "" {
			return fmt.Errorf("the other process: %s", strings.TrimPrefix(said, "sema: "))
		}
		return nil // or it had no time to end by itself: what it left will be removed
	}
	return o, nil
}

// read passes on lines until there are no more.
func read(r io.Reader) <-chan string {
	lines := make(chan string, 16) // more than are ever on their way
	go func() {
		defer close(lines)
		for scanner := bufio.NewScanner(r); scanner.Scan(); {
			lines <- scanner.Text()
		}
	}()
	return lines
}

// drain takes what it still says, until its end.
func (o *partner) drain() {
	for range o.lines {
	}
}

// close has the other side end and waits for that.
func (o *partner) close() error {
	_ = o.send.Close()
	return o.wait()
}

// expect waits for a word, and gives the time that follows it, if one does.
func (o *partner) expect(ctx context.Context, word string) (int64, error) {
	late := time.NewTimer(answerTime)
	defer late.Stop()
	for {
		select {
		case line, open := <-o.lines:
			if !open {
				return 0, errors.New("the other side has ended early")
			}
			if at, ok := timeIn(line, word); ok || line == word {
				return at, nil
			}
		case <-late.C:
			return 0, fmt.Errorf("the other side did not say %q within %v", word, answerTime)
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// handOff hands a permit over, waits until it is back and gives the time the
// hand-off took, in nanoseconds.
func (o *partner) handOff(ctx context.Context, s *sema.Semaphore, p *sema.Permit) (int64, *sema.Permit, error) {
	if _, err := fmt.Fprintln(o.send, sayAcquire); err != nil {
		return 0, p, err
	}
	if _, err := o.expect(ctx, sayQueued); err != nil {
		return 0, p, err
	}
	began := clock()
	if err := p.Release(); err != nil {
		return 0, p, err
	}
	at, err := o.expect(ctx, sayGot)
	if err != nil {
		return 0, p, err
	}
	p, err = s.Acquire(ctx)
	return at - began, p, err
}

// message sends the baseline's message and gives the time it took.
func (o *partner) message(ctx context.Context, b *bench, name string) (took int64, err error) {
	began := clock()
	switch {
	case o.pings != nil:
		select {
		case o.pings <- struct{}{}:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	case b.Redis != nil:
		err = publish(ctx, b.Redis, name)
	default:
		_, err = fmt.Fprintln(o.send, sayPing)
	}
	if err != nil {
		return 0, err
	}
	at, err := o.expect(ctx, sayHeard)
	return at - began, err
}
