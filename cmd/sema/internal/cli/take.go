package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"sema"
	"sema/engine"
	"sema/internal/view"
)

// takeFlags are the flags of commands that take a permit.
type takeFlags struct {
	limit        int
	limitGiven   bool
	weight       int
	key          engine.Key
	caps         sema.Caps
	takes        engine.Pools
	pools        engine.Pools
	priority     time.Duration
	came         time.Time // not zero: it has had a permit since, and given it back
	wait         time.Duration
	waitGiven    bool
	noWait       bool
	lease        time.Duration
	label        string
	conflict     string
	conflictCode int
	verbose      bool
	note         time.Duration
	replace      string
}

func (f *takeFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.IntVarP(&f.limit, "limit", "n", 1, "how much weight may be held at once; stays until somebody sets another limit")
	flags.Var(durationOf(&f.wait, 0), "wait", "longest wait for a permit: seconds, or 1m30s; without it, for ever")
	flags.BoolVar(&f.noWait, "no-wait", false, "take a permit now, or end with the conflict exit code")
	flags.IntVarP(&f.weight, "weight", "w", 1, "how much of the limit to take")
	flags.Var(durationOf(&f.lease, defaultLease), "lease", "how long the permit lives unless renewed")
	flags.StringVar(&f.label, "label", "", "what others see beside the permit (default: the command line, shortened)")
	flags.IntVarP(&f.conflictCode, "conflict-exit-code", "E", exitConflict, "exit code when there is no permit in time")
	flags.BoolVarP(&f.verbose, "verbose", "v", false, "print time waited and failed renewals on standard error")
	flags.Var(durationOf(&f.note, 0), "note", "how often to say on standard error what the wait is for; 0: never (default: $SEMA_NOTE, else 30s at a terminal and with -v)")

	keyFlag(cmd, &f.key, "the tenant, host or other key that the permit counts for: acme, or acme/alice; %2F for a slash in a name")
	capsFlag(cmd, &f.caps, "with -n: how much each key may hold; 20,4 is 20 for acme, and 4 for acme/alice (default: no more than -n in all)")
	poolsFlag(cmd, &f.takes, "take", 1, "what to take of pools, which are limits beside -n: gpu=1,licence=2; a run gets all of it at once, or waits")
	poolsFlag(cmd, &f.pools, "pools", 1, "with -n: how much there is of each pool: gpu=8,licence=4 (default: there are no pools)")
	flags.Var(durationOf(&f.priority, 0), "priority", "counts as time already waited: go before those of the same key that came less than this earlier")
	choiceFlag(cmd, &f.conflict, "on-conflict", "newest", "when the stored limit is not -n: set -n, go by the stored limit, or refuse to run", "newest", "stored", "strict")
	lessUsed(cmd, "key", "caps", "take", "pools", "priority", "on-conflict")
}

// policies are the values of --on-conflict.
var policies = map[string]sema.LimitPolicy{"newest": sema.LimitNewest, "stored": sema.LimitStored, "strict": sema.LimitStrict}

// check refuses combinations that make no sense. Ranges are the library's to
// check.
func (f *takeFlags) check(p *program, cmd *cobra.Command) error {
	if text := p.getenv("SEMA_NOTE"); !cmd.Flags().Changed("note") && text != "" {
		if err := (*duration)(&f.note).Set(text); err != nil {
			return usage("SEMA_NOTE=30s", "SEMA_NOTE=%s: %v", printable(text, 60), err)
		}
	} else if file, ok := p.stderr.(*os.File); !cmd.Flags().Changed("note") && (f.verbose || ok && term.IsTerminal(int(file.Fd()))) {
		f.note = 30 * time.Second
	}
	f.limitGiven, f.waitGiven = cmd.Flags().Changed("limit"), cmd.Flags().Changed("wait")
	switch {
	case cmd.Flags().Changed("on-conflict") && f.conflict != "stored" && !f.limitGiven:
		return usage("--limit N", "--on-conflict=%s needs --limit", f.conflict)
	case cmd.Flags().Changed("caps") && !f.limitGiven:
		return usage("--limit N", "--caps %s needs --limit", printable(cmd.Flag("caps").Value.String(), 60))
	case f.pools != "" && !f.limitGiven:
		return usage("--limit N", "--pools %s needs --limit", f.pools)
	case f.waitGiven && f.noWait:
		return usage("one of them", "--wait and --no-wait exclude each other")
	case f.note < 0:
		return usage("--note 30s", "--note %v is negative", f.note)
	case f.wait < 0:
		return usage("--wait 10s", "--wait %v is negative", f.wait)
	case f.conflictCode < 0 || f.conflictCode > 255:
		return usage("-E 75", "--conflict-exit-code %d: want 0 … 255", f.conflictCode)
	case f.lease == 0: // to the library it means the default
		return usage("--lease 30s", "lease 0s: want %v … %v", engine.MinLease, engine.MaxLease)
	case f.limitGiven && f.weight > f.limit && f.conflict == "strict":
		return usage("a larger --limit", "weight %d is above the limit %d", f.weight, f.limit)
	}
	return nil
}

// read is a flag whose text is read as soon as it is given.
type read struct {
	text string
	by   func(string) error
}

func (r *read) Set(text string) error { r.text = text; return r.by(text) }
func (r *read) String() string        { return r.text }
func (r *read) Type() string          { return "string" }

// keyFlag adds the flag --key.
func keyFlag(cmd *cobra.Command, key *engine.Key, help string) {
	cmd.Flags().Var(&read{by: func(text string) (err error) {
		*key, err = engine.ParseKey(text)
		switch _, escape := url.PathUnescape(text); {
		case text == "":
			return usage("--key acme", "--key is empty")
		case escape != nil:
			return usage("--key "+quote(strings.ReplaceAll(printable(text, 60), "%", "%25")), "--key %s: a percent sign in a name is %%25", printable(text, 60))
		case strings.Count(text, "/") >= engine.MaxDepth:
			return usage("%2F for a slash in a name", "--key %s: want at most %d names with slashes between", printable(text, 60), engine.MaxDepth)
		case slices.Contains(strings.Split(text, "/"), ""):
			return usage("--key acme/alice, or %2F for a slash in a name", "--key %s: a name is empty", printable(text, 60))
		}
		return err
	}}, "key", help)
}

// capsFlag adds the flag --caps.
func capsFlag(cmd *cobra.Command, caps *sema.Caps, help string) {
	cmd.Flags().Var(&read{by: func(text string) (err error) {
		if *caps, err = view.ParseCaps(text); err != nil {
			return usage("--caps 20,4", "--caps %s: want 1 to %d numbers of 0 … %d with commas between, for keys of one name, of two, of three; - is no cap", quote(printable(text, 60)), engine.MaxDepth, engine.MaxLimit)
		}
		return nil
	}}, "caps", help)
}

// poolsFlag adds a flag for amounts of pools, each least or more. It may be given several times, each time
// with other pools.
func poolsFlag(cmd *cobra.Command, pools *engine.Pools, name string, least int, help string) {
	cmd.Flags().Var(&read{by: func(text string) (err error) {
		all := strings.TrimPrefix(string(*pools)+","+text, ",")
		example := "gpu=1,licence=2"
		if *pools, err = engine.ParsePools(all, least); err == nil && text == "" {
			err = errors.New("want amounts of pools")
		} else if name == "take" && strings.ContainsAny(text, "/+") {
			err = errors.New("want how much of each pool, and no rate")
		}
		if name != "take" {
			example = "gpu=1,rpm=500/1m"
		}
		if err != nil {
			return usage("--"+name+" "+example, "--%s %s: %v", name, quote(printable(text, 60)), err)
		}
		return nil
	}}, name, help)
}

// wish is what the flags ask for.
func (f *takeFlags) wish() engine.Waiter {
	return engine.Waiter{Key: f.key, Takes: f.takes, Weight: f.weight}
}

// tries reports whether there is no wait.
func (f *takeFlags) tries() bool { return f.noWait || f.waitGiven && f.wait == 0 }

// holding is a permit that was taken, and what was learned on the way.
type holding struct {
	*sema.Permit
	engine sema.Engine
	limit  int           // as stored
	notes  <-chan string // what an observer has to say
	wait   *watch
	close  func() // gives the permit back, unless it is detached, and ends all traffic
}

// take waits for a permit. A signal while it waits leaves the queue. The
// permit's context does not end with a signal that comes later.
func (p *program) take(ctx context.Context, f *takeFlags, name string, o sema.Options, signals *signals) (h *holding, err error) {
	at, err := p.open(f.lease)
	if err != nil {
		return nil, err
	}
	notes := make(chan string, 64)
	w := &watch{program: p, name: name, flags: f, engine: at.Engine, began: time.Now(), notes: notes, moved: make(chan struct{}, 1), placed: make(chan struct{}, 1), cancel: func(error) {}}
	w.ahead.Store(-1)
	o.Lease, o.Observer, o.Patient, o.Caps, o.Pools = f.lease, w.observer(), true, f.caps, f.pools
	if o.OnConflict = policies[f.conflict]; !f.limitGiven { // there is none to put in the stored one's place
		o.OnConflict = sema.LimitStored
	}
	sem, err := sema.New(at.Engine, name, f.limit, &o)
	if err != nil {
		at.close()
		return nil, err
	}
	w.sem = sem
	closing := func() {
		w.cancel(nil)
		_ = sem.Close() // waits until what was asked for is given back
		at.close()
	}
	<-signals.begun
	began := time.Now()
	permit, err := w.acquire(ctx, at.Engine, signals)
	if err != nil {
		err = w.explain(ctx, err)
		return nil, closeOrLeave(closing, at.close, signals, err)
	}
	if f.replace != "" {
		if err := w.replaceAll(ctx, permit, signals); err != nil {
			_ = permit.Release()
			return nil, closeOrLeave(closing, at.close, signals, err)
		}
	}
	limit := cmp.Or(int(w.stored.Load()), f.limit)
	if limit != f.limit || time.Since(began) > quick {
		// Another goroutine may have taken in the answer, and its event about another limit
		// may still come; or the limit has changed since an earlier answer.
		within, cancel := context.WithTimeout(ctx, explainTime)
		if st, err := sem.State(within); err == nil && st.Limit > 0 {
			limit = st.Limit
		}
		cancel()
	}
	return &holding{Permit: permit, engine: at.Engine, limit: limit, notes: notes, wait: w, close: closing}, nil
}

// quick is the longest time after which the acquiring goroutine certainly took
// in the answer itself.
const quick = 100 * time.Millisecond

// explainTime bounds the time after a wait has ended: for a look at the holders, and for giving back a
// permit, if the engine does not answer.
const explainTime = 250 * time.Millisecond

// closeOrLeave gives back what a failed wait may have left at the engine, as
// the end of the program with that error. Of an engine that does not answer nothing is awaited
// for long: what it has ends by itself. So it is after a signal.
func closeOrLeave(closing, closeEngine func(), signals *signals, err error) error {
	if errors.Is(err, sema.ErrEngine) {
		// With the engine closed, closing has nothing more to wait for.
		defer time.AfterFunc(explainTime, closeEngine).Stop()
	}
	done, over := make(chan struct{}), (<-chan time.Time)(nil)
	go func() { closing(); close(done) }()
	for {
		select {
		case <-done:
			return err
		case <-over:
			return err
		case s := <-signals.C:
			if err = bySignal(s); over == nil {
				over = time.After(explainTime)
			}
		}
	}
}

// awayAfter is how long the engine is away before a wait says so.
const awayAfter = 2 * time.Second

// told is no time of watch.away.
const told = -1

// watch follows one wait.
type watch struct {
	*program
	name   string
	flags  *takeFlags
	sem    *sema.Semaphore
	notes  chan string
	moved  chan struct{} // there is a new position
	placed chan struct{} // the same, for --replace
	engine sema.Engine
	began  time.Time
	own    atomic.Pointer[string] // the id of the ticket
	ahead  atomic.Int64           // tickets before ours; -1: not queued yet
	stored atomic.Int64           // the stored limit, if it differs
	away   atomic.Int64           // since when asking has failed, in ns; 0: it has not; told: the user knows
	cancel context.CancelCauseFunc

	granted atomic.Bool // the wait is over
}

// ofQueue says which queue the place is in, if there is one for each key, or for those who take the same pools.
func (w *watch) ofQueue() (text string) {
	if w.flags.key != "" {
		text = " in the queue of " + printable(w.flags.key.String(), 40)
	}
	if w.flags.takes != "" {
		text = cmp.Or(text, " in the queue") + " for " + w.flags.takes.Names()
	}
	return text
}

// observer passes on what happens.
func (w *watch) observer() sema.Observer {
	return sema.Observer{
		RenewFailed: func(e sema.Event) { w.failed(e.Err) },
		Queued: func(e sema.Event) {
			w.ahead.Store(int64(e.Ahead))
			w.own.Store(&e.Permit)
			if w.away.Swap(told) == told {
				w.note("%q: the engine answers again", e.Semaphore)
			}
			w.away.Store(0)
			wake(w.placed)
			w.redraw()
		},
		LimitDiffers: func(e sema.Event) {
			w.stored.Store(int64(e.Limit))
			d, _ := errors.AsType[*sema.LimitError](e.Err)
			if w.flags.limitGiven || w.flags.verbose {
				stored, wanted := fmt.Sprint(d.Stored), fmt.Sprint(d.Wanted)
				if d.StoredCaps != d.WantedCaps {
					stored, wanted = stored+", "+capsWords(d.StoredCaps), wanted+", "+capsWords(d.WantedCaps)
				}
				if d.StoredPools != d.WantedPools {
					stored, wanted = stored+", "+poolsWords(d.StoredPools), wanted+", "+poolsWords(d.WantedPools)
				}
				whose, flag := w.whose()
				w.note("%q has limit %s, not %s: %s. To set it for all: sema limit%s%s %s",
					e.Semaphore, stored, wanted, whose, w.urlFlag(), flag, strings.Join(limitWords(d), " "))
			}
		},
	}
}

// redraw has the goroutine that waits show how it goes now.
func (w *watch) redraw() { wake(w.moved) }

// wake puts something into a channel that holds one, unless it is full.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func capsWords(caps sema.Caps) string {
	if caps == (sema.Caps{}) {
		return "no caps"
	}
	return "caps " + caps.String()
}

func poolsWords(pools engine.Pools) string {
	if pools == "" {
		return "no pools"
	}
	return "pools " + string(pools)
}

// limitWords are the words of sema limit that set what an error says is wanted.
func limitWords(d *sema.LimitError) []string {
	words := []string{quote(d.Name), fmt.Sprint(d.Wanted)}
	if d.StoredCaps != d.WantedCaps {
		words = append(words, "--caps", view.CapsText(d.WantedCaps))
	}
	var pools []string
	for name := range d.WantedPools.All() {
		if a := d.WantedPools.Amount(name); d.StoredPools.Amount(name) != a {
			pools = append(pools, name+"="+a.String())
		}
	}
	for name := range d.StoredPools.All() {
		if d.WantedPools.Of(name) == 0 {
			pools = append(pools, name+"=0")
		}
	}
	if len(pools) > 0 {
		words = append(words, "--pool", strings.Join(pools, ","))
	}
	return words
}

// note has a line said by the goroutine that has the terminal, without ever blocking.
func (w *watch) note(format string, args ...any) {
	select {
	case w.notes <- fmt.Sprintf(format, args...):
	default: // nobody reads as fast as that
	}
}

// failed takes in that the engine did not answer.
func (w *watch) failed(err error) {
	now := time.Now().UnixNano()
	switch since := w.away.Load(); {
	case w.flags.verbose:
		w.away.CompareAndSwap(0, told)
		w.note("%q: asked the engine in vain, trying again: %v", w.name, err)
	case w.granted.Load() || since == told || w.flags.tries(): // a permit's renewal, or nothing new
	case since == 0:
		w.away.Store(now)
	case time.Duration(now-since) > awayAfter:
		w.away.Store(told)
		w.note("%q: the engine is away, waiting on: %v", w.name, err)
	}
}

// whose is who set the limit that holds, and the flag with which another one would not begin to be enforced by that. The engine has just
// answered, so it is asked once more.
func (w *watch) whose() (text, flag string) {
	ctx, cancel := context.WithTimeout(context.Background(), min(time.Second, w.flags.lease/6))
	defer cancel()
	st, err := w.sem.State(ctx)
	if st.Observed != nil {
		flag = " --observe"
	}
	switch {
	case err != nil:
		text = "an operator pinned it, or another process set it"
	case st.Pinned:
		text = "an operator pinned it"
	default:
		text = "another process set it"
	}
	return text, flag
}

// answerTime is how long the engine's first answer is awaited in a shorter wait, as by sema.WaitAtMost.
const answerTime = 3 * time.Second

// ask waits as the flags say. A wait starts with a look at the semaphore that would show it to be
// in vain, and lasts through an engine that is away there as well.
func (w *watch) ask(ctx context.Context, e sema.Engine) (*sema.Permit, error) {
	f, began, within := w.flags, time.Now(), ctx
	try := f.tries()
	if f.waitGiven && !try {
		var done context.CancelFunc
		within, done = context.WithTimeout(ctx, max(f.wait, answerTime))
		defer done()
	}
	for {
		err := w.inVain(within, e)
		if err == nil {
			break
		}
		over := within.Err() != nil || f.waitGiven && time.Since(began) > f.wait
		if silent, ok := errors.AsType[*engine.Error](err); try || over || !ok || !silent.Temporary {
			return nil, err
		}
		w.failed(err)
	}
	priority := f.priority
	if !f.came.IsZero() {
		priority = min(priority+time.Since(f.came), 24*time.Hour) // no more is allowed
	}
	options := []sema.AcquireOption{sema.Weight(f.weight), sema.Priority(priority)}
	if f.waitGiven && !try {
		options = append(options, sema.WaitAtMost(max(1, f.wait-time.Since(began))))
	}
	if f.key != "" {
		options = append(options, sema.For(f.key.Names()...))
	}
	for pool, n := range f.takes.All() {
		options = append(options, sema.Take(pool, n))
	}
	if try {
		return w.sem.TryAcquire(ctx, options...)
	}
	return w.sem.Acquire(ctx, options...)
}

// acquire waits for the permit, for a signal, and shows how it goes.
func (w *watch) acquire(ctx context.Context, engine sema.Engine, signals *signals) (*sema.Permit, error) {
	caller := ctx.Done()
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	w.cancel = cancel
	var permit *sema.Permit
	var err error
	done, began := make(chan struct{}), time.Now()
	go func() {
		defer close(done)
		permit, err = w.ask(ctx, engine)
	}()
	live := w.newLive(ctx, began)
	defer live.close()
	if w.flags.replace != "" {
		live.look.Go(func() {
			if err := w.replaceWaiting(live.ctx); err != nil {
				cancel(&exit{exitUnreachable, err})
			}
		})
	}
	for {
		select {
		case <-caller:
			caller = nil
			cancel(bySignal(syscall.SIGTERM))
		case <-done:
			w.granted.Store(true)
			live.clear()
			for len(w.notes) > 0 {
				w.say("%s", <-w.notes)
			}
			stopped, ok := errors.AsType[*exit](context.Cause(ctx)) // by a signal, or because it cannot replace others
			switch {
			case ok && err == nil: // granted at that moment
				_ = permit.Release()
				return nil, stopped
			case ok:
				return nil, stopped
			case err == nil && w.flags.verbose:
				w.say("%q: permit %s after %s", w.name, permit.ID(), brief(time.Since(began)))
			}
			return permit, err
		case s := <-signals.C:
			cancel(bySignal(s)) // the first one counts
		case <-w.moved:
			live.draw()
		case text := <-w.notes:
			live.clear()
			w.say("%s", text)
		case <-live.ticks:
			live.tick()
		}
	}
}

// explain makes the program's error of a wait's.
func (w *watch) explain(ctx context.Context, err error) error {
	stopped, _ := errors.AsType[*exit](err)
	switch {
	case stopped != nil:
		return stopped
	case errors.Is(err, sema.ErrRevoked):
		by := cmp.Or(w.replacedBy(ctx, *cmp.Or(w.own.Load(), new(string))), "replaced by a newer run")
		if w.flags.replace == "" {
			by = "an operator revoked the ticket, or it was " + by
		}
		return &exit{w.flags.conflictCode, fmt.Errorf("%q: %s", w.name, by)}
	case errors.Is(err, sema.ErrNoPool):
		pool := w.flags.takes.Names()
		if strings.Contains(pool, ",") {
			pool = "POOL" // the error names it
		}
		return usage("--pools "+pool+"=N beside -n, or "+w.command("limit", quote(w.name), "--pool", pool+"=N"), "%v", err)
	case !errors.Is(err, sema.ErrBusy) && !errors.Is(err, context.DeadlineExceeded):
		return unreachable("acquire", w.name, err)
	}
	// Time ran out: because others hold it, or because nobody answers?
	ctx, cancel := context.WithTimeout(ctx, explainTime)
	defer cancel()
	st, looked := w.sem.State(ctx)
	silent, _ := errors.AsType[*engine.Error](err)
	when := "now"
	if w.flags.wait > 0 {
		when = fmt.Sprintf("within %v", w.flags.wait)
	}
	switch {
	case looked != nil && silent != nil:
		return silent // as the wait met it
	case errors.Is(looked, context.DeadlineExceeded) && w.away.Load() == 0: // it answered all the while, if slowly
		return &exit{w.flags.conflictCode, usage("sema why"+w.urlFlag()+" "+quote(w.name), "%q: no permit %s", w.name, when)}
	case looked != nil:
		return unreachable("acquire", w.name, looked)
	}
	paused := ""
	if st.Paused {
		paused = "paused by an operator, "
	}
	if c := st.Cooldown; c != nil {
		paused += "nobody begins for " + brief(c.Left) + ", "
	}
	options, held := "", ""
	if w.flags.key != "" {
		options = " --key " + quote(w.flags.key.String())
	}
	if w.flags.takes != "" {
		options += " --take " + string(w.flags.takes)
	}
	if _, busy := errors.AsType[*sema.BusyError](err); busy && tooManySets(st, w.flags.takes) {
		held = fmt.Sprintf("callers wait for %d other combinations of pools, ", engine.MaxPools)
	}
	for _, b := range view.LookAt(st).Bounds(w.flags.wish()) {
		if b.Text != "" {
			held += printable(b.Text, 100) + ", "
		}
	}
	return &exit{w.flags.conflictCode, usage(fmt.Sprintf("sema why%s %s%s", w.urlFlag(), quote(w.name), options),
		"%q: no permit %s: %s%s%d waiting", w.name, when, paused, held, others(st))}
}

// others is how many wait without this process, whose ticket may still be in the queue although its wait has ended.
func others(st sema.State) int {
	self := engine.Self("")
	st.Waiters = slices.DeleteFunc(slices.Clone(st.Waiters), func(t engine.Waiter) bool { return t.Client.Host == self.Host && t.Client.PID == self.PID })
	return st.Waiting()
}

// tooManySets reports whether so many other combinations of pools are waited for that a caller who wants these may not wait.
func tooManySets(st sema.State, takes engine.Pools) bool {
	sets := map[string]bool{"": true, takes.Names(): true}
	for _, waiter := range st.Waiters {
		sets[waiter.Takes.Names()] = true
	}
	return takes != "" && len(sets) > engine.MaxPools+1
}

// labelOf is the command line, short and printable; passwords in URLs are left
// out, since every user of the engine can read labels.
func labelOf(words []string) string {
	var parts []string
	for _, word := range words {
		if before, after, ok := strings.Cut(word, "://"); ok {
			if i := strings.LastIndex(after, "@"); i >= 0 {
				word = before + "://…" + after[i:]
			}
		}
		parts = append(parts, quote(word))
	}
	return printable(strings.ToValidUTF8(strings.Join(parts, " "), "�"), 60)
}
