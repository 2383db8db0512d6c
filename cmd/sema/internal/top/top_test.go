package top

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"go.uber.org/goleak"

	"sema"
	"sema/engine"
	"sema/engines/memengine"
	"sema/internal/fixture/expect"
	"sema/internal/view"
	"sema/watch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// viewer is somebody in front of a model without a terminal.
type viewer struct {
	t    *testing.T
	m    *model
	msgs chan tea.Msg
}

func viewed(t *testing.T, e sema.Engine, o Options) *viewer {
	t.Helper()
	o.Every = 10 * time.Millisecond
	ctx, cancel := context.WithCancel(context.Background())
	w, err := watch.New(e, &watch.Options{Interval: o.Every, Rate: 1_000_000})
	if err != nil {
		t.Fatal(err)
	}
	f := newFeed(ctx, e, w, o)
	v := &viewer{t, newModel(f, o), make(chan tea.Msg)}
	t.Cleanup(func() { cancel(); f.stop(); w.Close() })
	v.m.Init()
	f.start(func(msg tea.Msg) {
		select {
		case v.msgs <- msg:
		case <-ctx.Done():
		}
	})
	return v
}

func (v *viewer) screen() string { return ansi.Strip(v.m.View().Content) }

// key presses keys, each a letter or a name.
func (v *viewer) key(keys ...string) {
	codes := map[string]rune{"enter": tea.KeyEnter, "esc": tea.KeyEscape, "down": tea.KeyDown, "up": tea.KeyUp, "end": tea.KeyEnd, "home": tea.KeyHome, "pgdown": tea.KeyPgDown, "pgup": tea.KeyPgUp, "backspace": tea.KeyBackspace}
	for _, k := range keys {
		if code, ok := codes[k]; ok {
			v.m.Update(tea.KeyPressMsg{Code: code})
			continue
		}
		v.m.Update(tea.KeyPressMsg{Code: []rune(k)[0], Text: k})
	}
}

// until lets time go on until the screen has a text.
func (v *viewer) until(text string) {
	v.t.Helper()
	end := time.After(expect.Patience)
	for !strings.Contains(v.screen(), text) {
		select {
		case msg := <-v.msgs:
			v.m.Update(msg)
		case <-end:
			v.t.Fatalf("never seen: %q; the screen is\n%s", text, v.screen())
		}
	}
}

// fits fails if the screen is larger than the terminal.
func (v *viewer) fits() {
	v.t.Helper()
	lines := strings.Split(v.m.View().Content, "\n")
	if len(lines) > v.m.height {
		v.t.Errorf("%d lines on a terminal of %d", len(lines), v.m.height)
	}
	for _, line := range lines {
		if w := ansi.StringWidth(line); w > v.m.width {
			v.t.Errorf("%d cells on a terminal of %d: %q", w, v.m.width, line)
		}
	}
}

func operator(t *testing.T, e sema.Engine, name string) *sema.Operator {
	t.Helper()
	o, err := sema.Operate(e, name)
	expect.OK(t, err)
	t.Cleanup(func() { _ = o.Close() })
	return o
}

func hold(t *testing.T, e sema.Engine, name string, limit int, label string) *sema.Semaphore {
	t.Helper()
	s, err := sema.New(e, name, limit, &sema.Options{Label: label})
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = p.Release(), s.Close() })
	return s
}

func TestItFitsAnyTerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := memengine.New()
		defer func() { _ = e.Close() }()
		s := hold(t, e, strings.Repeat("長い名前", 20), 1, strings.Repeat("ein sehr langes Etikett ", 10))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		waited := make(chan struct{})
		go func() {
			defer close(waited)
			_, _ = s.Acquire(ctx)
		}()
		v := viewed(t, e, Options{Where: "memory"})
		v.until("[########]")
		for _, keys := range [][]string{nil, {"enter"}, {"end"}, {"l"}, {"esc"}, {"p"}} {
			v.key(keys...)
			for _, size := range []tea.WindowSizeMsg{{}, {Width: 20, Height: 5}, {Width: 40, Height: 10}, {Width: 80, Height: 24}, {Width: 300, Height: 100}} {
				v.m.Update(size)
				v.fits()
			}
		}
		cancel()
		<-waited
	})
}

func TestTenThousandSemaphoresPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := memengine.New()
		defer func() { _ = e.Close() }()
		for i := range 10_000 {
			o := operator(t, e, fmt.Sprintf("tenant-%05d", i))
			expect.OK(t, o.Set(t.Context(), sema.Rule{Limit: 1 + i%7}))
			_ = o.Close()
		}
		v := viewed(t, e, Options{})
		v.until("1-20 of 10000")
		v.key("pgdown")
		v.until("> tenant-00020")
		v.key("end")
		v.until("> tenant-09999")
		v.until("9981-10000 of 10000")
		v.key("up", "up")
		v.until("> tenant-09997")
		v.key("home")
		v.until("> tenant-00000")
		v.key("/", "0", "9", "9", "9", "enter")
		v.until("1-11 of 11")
		v.key("esc")
		v.until("1-20 of 10000")
		v.key("s", "s", "s")
		v.until("sorted by oldest")
		v.fits()
	})
}

// A name or label that somebody else wrote does not reach the terminal as more
// than text.
func TestWhatOthersWroteStaysText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		evil := "a\x1b[2J\x1b]0;title\x07\u202egnp\r\nb"
		m := newModel(newFeed(t.Context(), nil, nil, Options{}), Options{Where: evil})
		m.list = page{list: []watch.Summary{{Name: evil, Limit: 1, Looked: time.Now(), Err: errors.New(evil)}}, total: 1, err: errors.New(evil)}
		m.query.Filter = evil
		screens := m.View().Content
		m.name = evil
		m.one.state = view.LookAt(engine.State{
			Limit: 1, Keys: []engine.KeyState{{Key: engine.Key(evil), Held: 1, Waiting: 1, Cap: 1, Full: true}},
			Holders: []engine.Holder{{ID: evil, Key: engine.Key(evil), Client: engine.Client{Host: evil, Label: evil, Caller: evil}}},
			Waiters: []engine.Waiter{{ID: evil, Key: engine.Key(evil), Weight: 1, Client: engine.Client{Host: evil, Label: evil, Caller: evil}}},
		})
		m.one.keys = m.one.state.Rows()
		screens += m.View().Content
		m.byKey = true
		screens += m.View().Content
		m.byKey = false
		m.row = 1
		m.confirm(evil, "revoke "+clean(evil), nil)
		screens += m.View().Content
		for _, ours := range []string{bold, faint, red, yellow, end} {
			screens = strings.ReplaceAll(screens, ours, "")
		}
		for _, line := range strings.Split(screens, "\n") {
			if strings.ContainsAny(line, "\x1b\x07\r\u202e") {
				t.Errorf("a control character in %q", line)
			}
		}
	})
}

// A confirmed action applies to the line that the question named, even if
// another line is under the cursor by then.
func TestAYesIsAboutWhatWasAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := memengine.New()
		defer func() { _ = e.Close() }()
		b := hold(t, e, "b", 1, "")
		v := viewed(t, e, Options{})
		v.until("> b")
		v.key("p")
		v.until("pause b? (y/n)")
		a := hold(t, e, "a", 1, "") // comes before b
		v.until("a  ")
		v.key("y")
		v.until("pause b: done")
		for s, want := range map[*sema.Semaphore]bool{a: false, b: true} {
			st, err := s.State(t.Context())
			if err != nil || st.Paused != want {
				t.Errorf("%s is paused: %v, want %v; %v", s.Name(), st.Paused, want, err)
			}
		}
		v.until("> b")
	})
}

// away is an engine that does not answer.
type away struct{ sema.Engine }

func (away) List(context.Context) ([]string, error) {
	return nil, &engine.Error{Op: "list", Err: errors.New("refused")}
}

func TestAnEngineThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := memengine.New()
		defer func() { _ = e.Close() }()
		v := viewed(t, away{e}, Options{})
		v.until("! ")
		v.until("! Refused.")
		v.key("enter", "p", "l", "u", "r") // nothing is selected: nothing is asked
		if v.m.prompt.kind != nothing {
			t.Errorf("asked %q about nothing", v.m.prompt.text)
		}
		if _, _, err := Once(t.Context(), away{e}, Options{}, 0); err == nil {
			t.Error("a list of an engine that is away")
		}
	})
}

func TestASemaphoreThatGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := memengine.New()
		defer func() { _ = e.Close() }()
		o := operator(t, e, "gone")
		expect.OK(t, o.Set(t.Context(), sema.Rule{Limit: 3}))
		v := viewed(t, e, Options{})
		v.until("> gone")
		v.key("enter")
		v.until("limit 3 (pinned)")
		v.key("p")
		v.until("pause gone? (y/n)")
		expect.OK(t, o.Remove(t.Context()))
		v.until("there is no such semaphore now")
		v.key("y") // what was asked about is gone, and is not made anew
		v.until("no such semaphore: \"gone\"")
		for _, k := range []string{"p", "l", "u"} {
			v.key(k)
			if v.m.prompt.kind != nothing || v.m.note != "gone is gone: nobody uses it now" {
				t.Errorf("%s: asked %q, said %q", k, v.m.prompt.text, v.m.note)
			}
		}
		if names, err := e.List(t.Context()); len(names) != 0 || err != nil {
			t.Errorf("there is %q, %v", names, err)
		}
		v.key("esc")
		v.until("there are no semaphores to show")
	})
}

// A row says that it is gone when the semaphore went after it was listed.
func TestARowThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := memengine.New()
		defer func() { _ = e.Close() }()
		v := viewed(t, e, Options{})
		v.until("there are no semaphores to show")
		v.m.list.list = []watch.Summary{{Name: "gone", Looked: time.Now()}}
		for _, k := range []string{"p", "l", "u"} {
			v.key(k)
			if v.m.prompt.kind != nothing || v.m.note != "gone is gone: nobody uses it now" {
				t.Errorf("%s: asked %q, said %q", k, v.m.prompt.text, v.m.note)
			}
		}
	})
}

// The view of one semaphore has a line for each key, and counts a waiter's place
// among the waiters of its key.
func TestTheKeysOfASemaphore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := memengine.New()
		defer func() { _ = e.Close() }()
		_ = hold(t, e, "plain", 1, "")
		v := viewed(t, e, Options{})
		v.until("> plain")
		v.key("enter")
		v.until("holds ")
		v.key("t")
		v.until("no keys share plain now")
		if strings.Contains(v.screen(), "KEY") {
			t.Errorf("a semaphore without keys:\n%s", v.screen())
		}
		v.key("esc")
		s := semaphoreOf(t, e, "llm", 3, sema.Caps{2})
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		defer all.Wait()
		defer cancel()
		use := func(key string) {
			all.Go(func() {
				p, err := s.Acquire(ctx, sema.For(key))
				if err == nil {
					<-ctx.Done()
					_ = p.Release()
				}
			})
			synctest.Wait()
		}
		for _, key := range []string{"acme", "acme", "beta", "gamma", "acme", "acme"} {
			use(key)
		}
		v.until("llm ")
		v.key("up")
		v.until("> llm")
		v.key("enter")
		v.until("3 keys, caps 2")
		v.until("t by key")
		v.key("end")
		v.until("2. ") // of acme, though it is the third of all
		v.until("key acme")
		v.until("waits: behind 1 other of acme; acme holds 2 of its 2")
		v.key("t")
		v.until("> acme                       2")
		v.until("key acme")
		v.until("waits: acme holds 2 of its 2")
		v.key("r")
		v.until("only a permit that is held can be revoked")
		v.key("down")
		v.until("waits: 3 of 3 held")
		expect.OK(t, operator(t, e, "llm").Set(t.Context(), sema.Rule{Share: 300}, "gamma"))
		v.until("300*")
		v.until("> gamma") // under the cursor
		for _, size := range []tea.WindowSizeMsg{{Width: 20, Height: 5}, {Width: 80, Height: 24}, {Width: 300, Height: 100}} {
			v.m.Update(size)
			v.fits()
		}
		v.key("t")
		v.until("holds ")
		v.key("t")
		cancel()
		v.until("nobody waits")
		expect.OK(t, operator(t, e, "llm").Unset(t.Context(), "gamma"))
		v.until("esc back  r revoke") // without keys there is nothing to show by key
	})
}

// Keys of several names are rows of a tree, and a selected one is named as a whole.
func TestTheKeysBelowAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := memengine.New()
		defer func() { _ = e.Close() }()
		s := semaphoreOf(t, e, "llm", 9, sema.Caps{4, 2})
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		defer all.Wait()
		defer cancel()
		for _, path := range [][]string{{"acme", "alice"}, {"acme", "alice"}, {"acme", "alice"}, {"acme"}, {"acme", "a very long name indeed"}, {"acme"}, {"beta"}} {
			all.Go(func() {
				p, err := s.Acquire(ctx, sema.For(path...))
				if err == nil {
					<-ctx.Done()
					_ = p.Release()
				}
			})
			synctest.Wait()
		}
		v := viewed(t, e, Options{})
		v.until("> llm")
		v.key("enter")
		v.until("5 keys, caps 4,2")
		v.until("acme/alice")
		v.until("…name indeed") // of several names the end is shown
		v.key("t")
		for _, row := range []string{
			"> acme                       2", "   acme/alice                1", "   acme itself               1",
			"   …y long name indeed       0", "  beta                       0",
		} {
			v.until(row)
		}
		v.until("acme holds 4 of its 4")
		v.key("down")
		v.until("key acme/alice\n")
		v.until("waits: acme/alice holds 2 of its 2; acme holds 4 of its 4")
		v.key("down")
		v.until("key acme itself")
		v.until("waits: acme holds 4 of its 4")
		v.fits()
	})
}

// Pools are in the head of a semaphore's view, those first that most wait for, and what a permit takes of them beside its id.
func TestThePoolsOfASemaphore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := memengine.New()
		defer func() { _ = e.Close() }()
		s, err := sema.New(e, "jobs", 9, &sema.Options{Pools: "db=3,gpu=2,licence=4"})
		expect.OK(t, err)
		defer func() { _ = s.Close() }()
		p, err := s.Acquire(t.Context(), sema.Take("gpu", 2), sema.Take("licence", 1))
		expect.OK(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		waiting := make(chan error, 1)
		go func() { _, err := s.Acquire(ctx, sema.Take("gpu", 1)); waiting <- err }()
		synctest.Wait()
		v := viewed(t, e, Options{})
		v.until("> jobs")
		v.key("enter")
		v.until("1 waiting  gpu 2/2  db 0/3")
		v.until("takes gpu=2,licence=1")
		v.key("end")
		v.until("takes gpu=1")
		v.until("waits: 2 of 2 of gpu held")
		v.fits()
		if strings.Contains(v.screen(), "KEY") {
			t.Errorf("a semaphore without keys:\n%s", v.screen())
		}
		cancel()
		if err := <-waiting; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		expect.OK(t, p.Release())
	})
}

// semaphoreOf is a client of a semaphore that keys share.
func semaphoreOf(t *testing.T, e sema.Engine, name string, limit int, caps sema.Caps) *sema.Semaphore {
	t.Helper()
	s, err := sema.New(e, name, limit, &sema.Options{Caps: caps})
	expect.OK(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestBrief(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0.0s", 0: "0.0s", 1234 * time.Millisecond: "1.2s", 75 * time.Second: "1m15s", 3*time.Hour + time.Minute: "3h01m", 400 * 24 * time.Hour: "400d",
	} {
		if got := Brief(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}
