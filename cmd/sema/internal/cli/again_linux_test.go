package cli_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"sema"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
)

// set sets the limit of the semaphore that l looks at, as an operator.
func (l *looker) set(name string, limit int) {
	l.t.Helper()
	o, err := sema.Operate(l.engine, name)
	expect.OK(l.t, err)
	defer func() { _ = o.Close() }()
	expect.OK(l.t, o.Set(l.t.Context(), sema.Rule{Limit: limit}))
}

// At a terminal a table takes the place of the one before, and what was on the screen stays.
func TestWatchIsDrawnInPlace(t *testing.T) {
	onEngines(t, func(t *testing.T, url string) {
		l := look(t, url, "downloads")
		start(t, url, "run", "-n", "1", "--label", "first job", "downloads", "--", "cat")
		l.counts(1, 0)
		start(t, url, "run", "--label", "second job", "downloads", "--", "cat")
		l.counts(1, 1)
		x := inTmux(t, url)
		x.keys("echo what was before", "Enter")
		x.shows("\nwhat was before\n")
		x.keys("sema show downloads --watch=100ms", "Enter")
		x.shows("downloads: limit 1, used 1", "first job", "WAITER", "second job")
		l.set("downloads", 2)
		screen := x.shows("downloads: limit 2 (pinned), used 2")
		if strings.Contains(screen, "WAITER") || strings.Count(screen, " at ") != 1 || !strings.Contains(screen, "\nwhat was before\n") {
			t.Errorf("drawn anew:\n%s", screen)
		}

		// The window shrinks: the table is cut, and the rest is counted.
		for i := range 12 {
			l.set(fmt.Sprintf("idle-%02d-%s", i, strings.Repeat("界", 30)), i+1)
		}
		x.keys("C-c")
		x.code(130)
		x.keys("clear; sema ls --watch=100ms", "Enter")
		x.shows("idle-11-")
		x.run("resize-window", "-x", "40", "-y", "8")
		screen = x.shows("and 9 more lines", "downloads  ", "idle-02-", "…")
		if lines := strings.Split(strings.TrimSuffix(screen, "\n"), "\n"); strings.Contains(screen, "idle-03-") || lines[len(lines)-1] != "" || strings.Count(screen, "NAME") != 1 {
			t.Errorf("cut:\n%s", screen)
		}
		x.run("resize-window", "-x", "80", "-y", "24")
		x.shows("idle-11-")
		x.keys("C-c")
		x.code(130)
		x.asBefore()
	})
}

// Whatever ends it, the terminal is as it was.
func TestWatchLeavesTheTerminalAsItWas(t *testing.T) {
	t.Parallel()
	for s, code := range map[syscall.Signal]int{syscall.SIGHUP: 129, syscall.SIGTERM: 143, syscall.SIGKILL: 137} {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			url := fileURL(t)
			x, pid := inTmux(t, url), filepath.Join(t.TempDir(), "pid")
			x.keys("sh -c 'echo $$ > "+pid+"; exec sema ls --watch=100ms'", "Enter")
			x.shows("has no semaphores now")
			text, err := os.ReadFile(pid)
			expect.OK(t, err)
			number, err := strconv.Atoi(strings.TrimSpace(string(text)))
			expect.OK(t, err)
			expect.OK(t, syscall.Kill(number, s))
			x.code(code)
			x.asBefore()
		})
	}
	t.Run("a stop", func(t *testing.T) {
		t.Parallel()
		x := inTmux(t, fileURL(t))
		x.keys("sema show --watch=100ms downloads", "Enter")
		x.shows(`there is no semaphore "downloads"`)
		x.keys("C-z")
		x.shows("Stopped")
		x.asBefore()
		x.keys("fg", "Enter")
		x.shows(`there is no semaphore "downloads"`)
		x.keys("C-c")
		x.code(130)
		x.asBefore()
	})
}

// On a pipe there is a block for each look. While the engine is away, it says so with what
// was read last, and it goes on.
func TestWatchOnAPipe(t *testing.T) {
	ofProcesses(t)
	t.Parallel()
	server := redistest.Start(t)
	url := server.URL()
	l := look(t, url, "downloads")
	l.set("downloads", 3)
	j := start(t, url, "ls", "--watch=100ms")
	until := func(want func(block []string) bool) {
		t.Helper()
		for {
			var block []string
			for line := j.line(); line != ""; line = j.line() {
				block = append(block, line)
			}
			if want(block) {
				return
			}
		}
	}
	header := "redis " + server.Addr() + " at "
	read := func(limit string) func([]string) bool {
		return func(b []string) bool {
			return len(b) == 3 && strings.HasPrefix(b[0], header) && strings.HasPrefix(b[1], "NAME ") && strings.Join(strings.Fields(b[2]), " ") == "downloads "+limit+" 0 0 0"
		}
	}
	until(read("3"))
	until(read("3"))
	server.Kill()
	until(func(b []string) bool {
		return len(b) == 4 && strings.HasPrefix(b[0], header) && strings.HasPrefix(b[1], "not read at ") && strings.Contains(b[1], "Try: ") && strings.HasPrefix(b[3], "downloads ")
	})
	server.Restart()
	l.set("downloads", 4)
	until(read("4"))
	j.signal(syscall.SIGTERM)
	j.exits(143)
}

// With --json there is a document for each look; one that fails is an object on standard error.
func TestWatchInJSON(t *testing.T) {
	t.Parallel()
	url := fileURL(t)
	l := look(t, url, "downloads")
	j := start(t, url, "show", "--watch=100ms", "--json", "downloads")
	j.says(`"exit_code":1}`)
	l.set("downloads", 3)
	documents := json.NewDecoder(j.lines)
	for _, limit := range []int{3, 3, 4} {
		if limit == 4 {
			l.set("downloads", limit)
		}
		var is struct{ Limit int }
		for is.Limit != limit {
			expect.OK(t, documents.Decode(&is))
		}
	}
	j.signal(syscall.SIGINT)
	j.exits(130)
}
