package fileengine

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"sema/engine"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/opened"
	"sema/internal/pack"
	"sema/internal/protocol"
)

// logOf is the path of the log of semaphore x.
func logOf(dir string) string { return filepath.Join(dir, fileName("x")) }

func TestTornTailIsCut(t *testing.T) {
	dir := t.TempDir()
	a, b := openUser(t, openEngine(t, dir), "x", 1), openUser(t, openEngine(t, dir), "x", 1)
	held := a.take(t)
	whole, err := os.ReadFile(logOf(dir))
	expect.OK(t, err)
	rec := record{moment: moment{At: 1}, Client: "f.1", Call: protocol.Call{Number: 1}}
	torn, _ := frame(nil, 0, pack.Append(nil, rec.code))
	for cut := range len(torn) { // even a complete record: its checksum does not follow from the last one
		expect.OK(t, os.WriteFile(logOf(dir), slices.Concat(whole, torn[:cut+1]), 0o600))
		if got := b.status(t, b.ask(false)); got != protocol.Refused {
			t.Fatalf("with %d bytes of a torn record: status %v", cut+1, got)
		}
		whole, err = os.ReadFile(logOf(dir))
		expect.OK(t, err)
		if _, err := readImage(whole); err != nil {
			t.Fatal(err)
		}
	}
	expect.OK(t, a.release(held))
	b.take(t)
}

func TestCompactedLogIsGoneOnWith(t *testing.T) {
	dir := t.TempDir()
	a, b := openUser(t, openEngine(t, dir), "x", 2), openUser(t, openEngine(t, dir), "x", 2)
	held := b.take(t)
	for range 500 {
		expect.OK(t, a.release(a.take(t)))
	}
	info, err := os.Stat(logOf(dir))
	expect.OK(t, err)
	if info.Size() > 2*compactAt {
		t.Errorf("the log has %d bytes", info.Size())
	}
	if st := b.state(t); len(st.Holders) != 1 || st.Holders[0].ID != held.String() {
		t.Errorf("state %+v", st)
	}
	expect.OK(t, b.release(held))
}

// A log that is damaged while a and b hold 2 of 2 permits is restored.
func TestDamagedFileIsRestored(t *testing.T) {
	for name, damage := range map[string]func(path string) error{
		"empty":     func(path string) error { return os.Truncate(path, 0) },
		"removed":   os.Remove,
		"garbage":   func(path string) error { return os.WriteFile(path, []byte("hello"), 0o600) },
		"other":     func(path string) error { return os.Rename(path, path+"~") },
		"cut":       func(path string) error { return os.Truncate(path, 40) },
		"directory": func(path string) error { return os.RemoveAll(filepath.Dir(path)) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "sema")
			a, b := openUser(t, openEngine(t, dir), "x", 2), openUser(t, openEngine(t, dir), "x", 2)
			ha, hb := a.take(t), b.take(t)
			a.state(t) // reads both permits
			expect.OK(t, damage(logOf(dir)))
			a.engine.checked = time.Time{} // as if some seconds had passed
			b.engine.checked = time.Time{}
			renew := protocol.Request{Kind: protocol.Renew, ID: ha, Lease: a.lease}
			a.wants(t, renew, protocol.Granted)
			c := openUser(t, openEngine(t, dir), "x", 2)
			if got := c.status(t, c.ask(false)); name != "directory" && got != protocol.Refused {
				t.Errorf("a third permit: status %v", got)
			}
			expect.OK(t, a.release(ha))
			reply, err := b.call(protocol.Request{Kind: protocol.Release, ID: hb})
			if err != nil || name != "directory" && reply.Answers[0].Status != protocol.Done {
				t.Errorf("the other release: %+v, %v", reply, err)
			}
		})
	}
}

// A process that opens a damaged log asks the living processes to restore it.
func TestANewProcessGetsADamagedLogRestored(t *testing.T) {
	dir := t.TempDir()
	a := openUser(t, openEngine(t, dir), "x", 1)
	held := a.take(t)
	expect.OK(t, os.WriteFile(logOf(dir), []byte("sema log 1 0.1.0\nhello"), 0o600))
	b := openUser(t, openEngine(t, dir), "x", 1)
	b.wants(t, b.ask(false), protocol.Refused)
	expect.OK(t, a.release(held))
	b.take(t)
}

func TestDamagedFileWithoutHoldersIsReplaced(t *testing.T) {
	dir := t.TempDir()
	expect.OK(t, os.WriteFile(logOf(dir), []byte("hello"), 0o600))
	u := openUser(t, openEngine(t, dir), "x", 1)
	expect.OK(t, u.release(u.take(t)))
}

// A permit is lost if its log was removed and another process has begun a new one.
func TestReplacedLogCounts(t *testing.T) {
	dir := t.TempDir()
	a := openUser(t, openEngine(t, dir), "x", 1)
	held := a.take(t)
	expect.OK(t, os.Remove(logOf(dir)))
	openUser(t, openEngine(t, dir), "x", 1).take(t) // above the limit, until a's next renewal
	a.wants(t, protocol.Request{Kind: protocol.Renew, ID: held, Lease: a.lease}, protocol.Gone)
}

// If the whole directory was removed, the waiters queue again as soon as a holder has
// noticed.
func TestRemovedDirectoryIsMadeAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "sema")
	a := openUser(t, openEngine(t, dir), "x", 1)
	held := a.take(t)
	queue, tickets := queueUp(t, dir, 5)
	a.state(t)
	expect.OK(t, os.RemoveAll(dir))
	a.engine.checked = time.Time{}
	a.wants(t, protocol.Request{Kind: protocol.Renew, ID: held, Lease: a.lease}, protocol.Granted)
	expect.Until(t, "all pipes", func() bool {
		pipes, _ := filepath.Glob(filepath.Join(dir, "*"+lifeSuffix))
		return len(pipes) == 6
	})
	expect.OK(t, a.release(held))
	for i, u := range queue {
		u.granted(t, tickets[i])
		expect.OK(t, u.release(tickets[i]))
	}
}

// A waiter is woken if its log was removed, and a process without its ticket has begun a
// new log.
func TestWhoWaitsLearnsThatTheLogIsAnother(t *testing.T) {
	for what, restored := range map[string]bool{"a holder restores it": true, "a new process begins another": false} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			a, b := openUser(t, openEngine(t, dir), "x", 1), openUser(t, openEngine(t, dir), "x", 1)
			held := a.take(t)
			r := b.queue(t)
			expect.OK(t, os.Remove(logOf(dir)))
			var another engine.ID
			c := openUser(t, openEngine(t, dir), "x", 1)
			if !restored {
				another = c.take(t)
			}
			// a does not know that b waits, since its last step was before.
			got := a.status(t, protocol.Request{Kind: protocol.Renew, ID: held, Lease: a.lease})
			if want := map[bool]protocol.Status{true: protocol.Granted, false: protocol.Gone}[restored]; got != want {
				t.Fatalf("renewal: status %v, want %v", got, want)
			}
			if n := <-b.told; !n.Ask {
				t.Fatalf("told %+v", n)
			}
			b.wants(t, r, protocol.Queued)
			if restored {
				expect.OK(t, a.release(held))
			} else {
				expect.OK(t, c.release(another))
			}
			b.granted(t, r.ID)
		})
	}
}

// A log that was damaged in its middle continues from there. A process that has read the
// lost records notices that in its next step, and asks all others to look.
func TestLogThatLostItsEndWakesAll(t *testing.T) {
	dir := t.TempDir()
	a, b, c := openUser(t, openEngine(t, dir), "x", 1), openUser(t, openEngine(t, dir), "x", 1), openUser(t, openEngine(t, dir), "x", 1)
	held := a.take(t)
	info, err := os.Stat(logOf(dir))
	expect.OK(t, err)
	waiters, asks := []*user{b, c}, []protocol.Request{b.ask(true), c.ask(true)}
	for i, u := range waiters { // c is the last to read
		u.wants(t, asks[i], protocol.Queued)
	}
	expect.OK(t, os.Truncate(logOf(dir), info.Size())) // as after damage in the middle
	a.wants(t, protocol.Request{Kind: protocol.Renew, ID: held, Lease: a.lease}, protocol.Granted)
	c.state(t)
	for i, u := range waiters {
		if n := <-u.told; !n.Ask {
			t.Fatalf("told %+v", n)
		}
		u.wants(t, asks[i], protocol.Queued)
	}
}

// Nothing is granted if the log cannot be created, because the directory has just been
// removed.
func TestNothingIsGrantedWithoutALog(t *testing.T) {
	dir := t.TempDir()
	a := openUser(t, openEngine(t, dir), "x", 1)
	a.session.(*session).log.path = filepath.Join(dir, "gone", "x.log")
	reply, err := a.call(a.ask(false))
	var e *engine.Error
	if !errors.As(err, &e) || !e.Temporary || !e.NotExecuted || e.Hint == "" {
		t.Errorf("answered %+v, %v", reply, err)
	}
}

// A living process whose pipe was removed counts as dead. It learns of that in its next
// step, and from then on counts as alive.
func TestWhoWasTakenForDeadLearnsOfIt(t *testing.T) {
	dir := t.TempDir()
	a, b := openUser(t, openEngine(t, dir), "x", 1), openUser(t, openEngine(t, dir), "x", 1)
	held := a.take(t)
	expect.OK(t, os.Remove(a.engine.pipePath(a.engine.process)))
	other := b.take(t)
	r := a.queue(t)
	n := <-a.told
	if !n.Renew || !n.Ask {
		t.Errorf("told %+v", n)
	}
	a.wants(t, protocol.Request{Kind: protocol.Renew, ID: held, Lease: a.lease}, protocol.Gone)
	expect.OK(t, b.release(other))
	a.granted(t, r.ID)
	b.wants(t, b.ask(false), protocol.Refused)
}

func TestLockIsWaitedForNoLongerThanTheContext(t *testing.T) {
	dir := t.TempDir()
	a := openUser(t, openEngine(t, dir), "x", 1)
	held := a.take(t)
	f, err := os.OpenFile(logOf(dir), os.O_RDWR, 0)
	expect.OK(t, err)
	if ok, err := lockFile(f, true); !ok || err != nil {
		t.Fatal(ok, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = a.session.Step(ctx, protocol.Call{Number: 100, Requests: []protocol.Request{{Kind: protocol.Release, ID: held}}})
	var e *engine.Error
	if !errors.As(err, &e) || !e.NotExecuted || !e.Temporary || !errors.Is(e.Err, ctx.Err()) {
		t.Errorf("error %#v", err)
	}
	unlockFile(f)
	expect.OK(t, f.Close())
	expect.OK(t, a.release(held))
}

// State waits for the lock as long as others write the log: they pass the lock on.
func TestStateWaitsForABusyLock(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := opened.Semaphore(t, openEngine(t, dir), "x", 1, nil)
	p, err := s.Acquire(t.Context())
	expect.OK(t, err)
	f, err := os.OpenFile(logOf(dir), os.O_RDWR, 0)
	expect.OK(t, err)
	defer func() { _ = f.Close() }()
	_, err = lockFile(f, true)
	expect.OK(t, err)
	go func() {
		for end := time.Now().Add(4 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			_ = os.Chtimes(logOf(dir), time.Now(), time.Now())
		}
		unlockFile(f)
	}()
	if st, err := s.State(t.Context()); err != nil || len(st.Holders) != 1 {
		t.Errorf("%+v, %v", st, err)
	}
	expect.OK(t, p.Release())
}

func FuzzLog(f *testing.F) {
	dir := f.TempDir()
	u := openUser(f, openEngine(f, dir), "x", 2)
	u.take(f)
	u.status(f, u.ask(true))
	u.status(f, u.ask(true))
	data, err := os.ReadFile(logOf(dir))
	expect.OK(f, err)
	f.Add(data, uint64(1))
	f.Fuzz(func(t *testing.T, b []byte, seed uint64) {
		if m, err := readImage(b); err == nil {
			m.ledger.State(m.Last.At)
		}
		// Random bytes hardly ever have a valid checksum, so test the decoders directly too.
		r := rand.New(rand.NewPCG(seed, 0))
		for range 10 {
			if len(b) > 0 {
				b[r.IntN(len(b))] ^= 1 << r.IntN(8)
			}
			if rec := (record{}); pack.Read(b, rec.code) == nil {
				m := newImage(header{})
				m.apply(&rec, func(string) bool { return true })
			}
			if h := (header{}); pack.Read(b, h.code) == nil {
				newImage(h)
			}
		}
	})
}

func TestRecordsSurviveTheFile(t *testing.T) {
	for i, rec := range []record{
		{moment: moment{5, 6, 7}, Reap: []string{"a", "b"}},
		{Client: "f.1", Call: protocol.Call{Requests: []protocol.Request{{Kind: protocol.Release, ID: engine.ID{Client: "f.1", Number: 3, Weight: 1}}}}},
		{Client: "f.1", Call: protocol.Call{Requests: []protocol.Request{{Kind: protocol.SetKey, Target: protocol.Target{Key: "k"}, Cap: 1}, {ID: engine.ID{Client: "f.1"}, Caps: engine.Caps{2, 0, 3}, Share: 4, Pools: "p"}}}},
		{
			moment: moment{5, 6, 7}, Reap: []string{"a", "b"}, Lost: []string{"c.1"}, Client: "f.1", Who: engine.Client{Host: "h", PID: 7, Label: "l"},
			Call: protocol.Call{Number: 1<<64 - 1, Fence: true, Requests: []protocol.Request{{
				Kind: protocol.Ask, ID: engine.ID{Client: "g.2", Number: 1<<64 - 1, Weight: engine.MaxLimit, Slot: true}, Limit: 3,
				Lease: time.Hour, Ticket: time.Minute, Waited: time.Second, Wait: true, Unfair: true, Strict: true, Detached: true,
				Who: &engine.Client{Host: "h", Caller: "c", Lease: time.Second},
			}, {Kind: protocol.SetLimit, Pin: true}, {Kind: protocol.Release, Mine: true, Token: 9}, {Kind: protocol.Ask, Who: &engine.Client{}}}},
		},
	} {
		got := record{}
		if err := pack.Read(pack.Append(nil, rec.code), got.code); err != nil || !reflect.DeepEqual(got, rec) {
			t.Errorf("record %d: wrote %+v\nread %+v, %v", i, rec, got, err)
		}
	}
}

// A record does not repeat what its step does not need, so that a log is seldom rewritten: only an Ask
// has the description of its client, and the caller's name occurs once.
func TestARecordHasOnlyWhatItNeeds(t *testing.T) {
	rec := record{
		moment: moment{5, 6, 7}, Client: "f.1", Who: engine.Client{Host: "host", Label: "label"},
		Call: protocol.Call{Requests: []protocol.Request{{Kind: protocol.Release, ID: engine.ID{Client: "f.1", Number: 3, Weight: 1}}}},
	}
	for kind, described := range map[protocol.Kind]int{protocol.Ask: 1, protocol.Renew: 0, protocol.Release: 0, protocol.SetLimit: 0} {
		rec.Call.Requests[0].Kind = kind
		b := pack.Append(nil, rec.code)
		for text, want := range map[string]int{"f.1": 1, "host": described, "label": described} {
			if n := bytes.Count(b, []byte(text)); n != want {
				t.Errorf("%v: %q occurs %d times in %q, not %d", kind, text, n, b, want)
			}
		}
	}
}
