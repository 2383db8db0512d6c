package cli_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"sema"
	"sema/internal/fixture/expect"
)

// someLoad is a semaphore with holders and waiters, and one that idles.
func someLoad(t *testing.T, url string) *looker {
	t.Helper()
	l := look(t, url, "downloads")
	start(t, url, "run", "-n", "1", "--label", "first job", "downloads", "--", "cat")
	l.counts(1, 0)
	start(t, url, "run", "--label", "second job", "downloads", "--", "cat")
	l.counts(1, 1)
	idle, err := sema.Operate(look(t, url, "idle").engine, "idle")
	expect.OK(t, err)
	defer func() { _ = idle.Close() }()
	expect.OK(t, idle.Set(t.Context(), sema.Rule{Limit: 7}))
	return l
}

func TestTop(t *testing.T) {
	onEngines(t, func(t *testing.T, url string) {
		l := someLoad(t, url)
		x := inTmux(t, url)
		x.keys("sema top --every 100ms", "Enter")
		x.shows("sorted by waiting", "1-2 of 2", "> downloads", "[########]", "idle", "pinned")

		// Filter, and sort.
		x.keys("/", "i", "d", "l", "Enter")
		x.shows("filter idl", "1-1 of 1", "> idle")
		x.keys("Escape")
		x.shows("1-2 of 2")
		x.keys("s")
		x.shows("sorted by oldest")
		x.keys("s", "s", "s")
		x.shows("sorted by waiting", "1-2 of 2")
		x.keys("Home")
		x.shows("> downloads")

		// One of them, and why the waiter waits.
		x.keys("Enter")
		x.shows("downloads  limit 1", "held 1  free 0  1 holding  1 waiting", "first job", "second job")
		x.keys("Down")
		x.shows("> 1.", "waits: 1 of 1 held", "permit "+l.state().Waiters[0].ID)
		x.keys("r")
		x.shows("only a permit that is held can be revoked")

		// A no changes nothing; a yes does.
		x.keys("Up", "r")
		x.shows("revoke " + l.state().Holders[0].ID + "? (y/n)")
		x.keys("n")
		x.shows("nothing was done")
		if l.state().Holders[0].Revoked {
			t.Error("revoked without a yes")
		}
		x.keys("l", "x", "0", "Enter")
		x.shows(`limit "0": want 1`)
		x.keys("l", "2", "Enter")
		x.shows("set the limit of downloads to 2? (y/n)")
		x.keys("y")
		x.shows("set the limit of downloads to 2: done", "limit 2 (pinned)", "2 holding  0 waiting")
		l.counts(2, 0)
		revoked := l.state().Holders[0].ID
		x.keys("Home", "r")
		x.shows("? (y/n)")
		x.keys("y")
		x.shows(": done")
		l.until("a permit that is revoked, or gone", func(st sema.State) bool {
			return len(st.Holders) < 2 || st.Holders[0].Revoked || st.Holders[1].Revoked || st.Holders[0].ID != revoked
		})

		x.keys("Escape")
		x.shows("sorted by waiting")
		x.keys("q")
		x.code(0)
		x.asBefore()
	})
}

func TestTopPauses(t *testing.T) {
	t.Parallel()
	url := fileURL(t)
	l := someLoad(t, url)
	x := inTmux(t, url)
	x.keys("sema top --every 100ms", "Enter")
	x.shows("> downloads")
	x.keys("p")
	x.shows("pause downloads? (y/n)")
	x.keys("y")
	x.shows("pause downloads: done", "paused")
	if !l.state().Paused {
		t.Error("it is not paused")
	}
	x.keys("Enter")
	x.shows("(PAUSED)")
	x.keys("End")
	x.shows("waits: paused by an operator")
	x.keys("p")
	x.shows("unpause downloads? (y/n)")
	x.keys("y")
	x.shows("unpause downloads: done")
	l.until("the end of the pause", func(st sema.State) bool { return !st.Paused })
	x.keys("C-c")
	x.code(0)
	x.asBefore()
}

// Whatever ends it, the terminal is as it was.
func TestTopLeavesTheTerminalAsItWas(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		signal syscall.Signal
		code   int
	}{"INT": {syscall.SIGINT, 130}, "TERM": {syscall.SIGTERM, 143}, "USR1": {syscall.SIGUSR1, 138}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := fileURL(t)
			someLoad(t, url)
			x, pid := inTmux(t, url), filepath.Join(t.TempDir(), "pid")
			x.keys("sh -c 'echo $$ > "+pid+"; exec sema top --every 100ms'", "Enter")
			x.shows("> downloads")
			x.keys("l") // in the midst of a question
			x.shows("limit of downloads: _")
			text, err := os.ReadFile(pid)
			expect.OK(t, err)
			number, err := strconv.Atoi(strings.TrimSpace(string(text)))
			expect.OK(t, err)
			expect.OK(t, syscall.Kill(number, c.signal))
			x.code(c.code)
			x.asBefore()
		})
	}
	t.Run("a panic", func(t *testing.T) {
		t.Parallel()
		url := fileURL(t)
		someLoad(t, url)
		x := inTmux(t, url, "SEMA_TEST_PANIC=X")
		x.keys("sema top --every 100ms 2>/dev/null", "Enter")
		x.shows("> downloads")
		x.keys("X")
		x.code(69)
		x.asBefore()
	})
	t.Run("a stop", func(t *testing.T) {
		t.Parallel()
		url := fileURL(t)
		someLoad(t, url)
		x := inTmux(t, url)
		x.keys("sema top --every 100ms", "Enter")
		x.shows("> downloads")
		x.keys("C-z")
		x.shows("Stopped")
		x.asBefore()
		x.keys("fg", "Enter")
		x.shows("> downloads", "sema top")
		x.keys("q")
		x.code(0)
		x.asBefore()
	})
}

// Without colour nothing of it is missed.
func TestTopWithoutColour(t *testing.T) {
	t.Parallel()
	url := fileURL(t)
	someLoad(t, url)
	x := onTerminal(t, url, "env", "NO_COLOR=1", "sema", "top", "--every", "100ms")
	x.shows("downloads")
	x.shows("quit")
	x.kind("q")
	x.exits(0)
	for _, colour := range []string{"\x1b[31m", "\x1b[33m", "\x1b[1;31m", "38;5", "38;2"} {
		x.never(colour)
	}
	y := onTerminal(t, url, "sema", "top", "--every", "100ms")
	y.shows("idle")  // a key that comes before there is a list moves nothing
	y.kind("\x1b[B") // the line that waits is red when it is not selected
	y.shows("31m")
	y.kind("q")
	y.exits(0)
}

func TestTopRefusesATerminalThatCannotBeDrawnOn(t *testing.T) {
	t.Parallel()
	x := onTerminal(t, fileURL(t), "env", "TERM=dumb", "sema", "top")
	x.shows("TERM is dumb. Try: sema top --once")
	x.exits(64)
	x.never("\x1b")
}

// The engine is away: it says so, and can be left.
func TestTopWithoutAnEngine(t *testing.T) {
	t.Parallel()
	x := inTmux(t, "redis://127.0.0.1:1")
	x.keys("sema top --every 100ms", "Enter")
	x.shows("sema top  redis 127.0.0.1:1", "! ", "q quit")
	x.keys("q")
	x.code(0)
	x.asBefore()
}
