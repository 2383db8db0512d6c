package cli_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"sema"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/opened"
	"sema/internal/fixture/redistest"
)

// set sets the limit of the semaphore that l looks at, as an operator.
func (l *looker) set(name string, limit int) {
	l.t.Helper()
	expect.OK(l.t, opened.Operator(l.t, l.engine, name).Set(l.t.Context(), sema.Rule{Limit: limit}))
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

// On a pipe there is a block for each look. While the engine is away, it says so, shows the
// last look, and goes on.
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

// tmux is a real terminal of 80 by 24 with a shell in it, whose screen the test
// reads as a person would.
type tmux struct {
	t      *testing.T
	socket string
}

func inTmux(t *testing.T, url string, env ...string) *tmux {
	t.Helper()
	ofProcesses(t)
	dir, err := os.MkdirTemp("", "tmux") // a socket's path is short
	expect.OK(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	x := &tmux{t, filepath.Join(dir, "s")}
	cmd := exec.Command("tmux", "-S", x.socket, "-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", "bash --norc --noprofile")
	cmd.Env = append(append(os.Environ(), "SEMA_URL="+url, "HISTFILE=", "SSH_TTY=/dev/pts/0"), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("tmux: %v: %s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("tmux", "-S", x.socket, "kill-server").Run() })
	x.until("a prompt", func(screen string) bool { return strings.ContainsAny(screen, "$#") })
	return x
}

func (x *tmux) run(args ...string) string {
	x.t.Helper()
	out, err := exec.Command("tmux", append([]string{"-S", x.socket}, args...)...).CombinedOutput()
	if err != nil {
		x.t.Fatalf("tmux %v: %v: %s", args, err, out)
	}
	return string(out)
}

// keys are typed, by tmux's names for them.
func (x *tmux) keys(keys ...string) { x.t.Helper(); x.run(append([]string{"send-keys"}, keys...)...) }

// screen is what is to be seen now.
func (x *tmux) screen() string { x.t.Helper(); return x.run("capture-pane", "-p") }

// until waits for a screen.
func (x *tmux) until(what string, ok func(screen string) bool) string {
	x.t.Helper()
	screen := ""
	for end := time.Now().Add(expect.Patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if screen = x.screen(); ok(screen) {
			return screen
		}
	}
	x.t.Fatalf("never seen: %s; the screen is\n%s", what, screen)
	return ""
}

// shows waits until all these are on the screen.
func (x *tmux) shows(texts ...string) string {
	x.t.Helper()
	return x.until(fmt.Sprintf("%q", texts), func(screen string) bool {
		for _, text := range texts {
			if !strings.Contains(screen, text) {
				return false
			}
		}
		return true
	})
}

// code waits until the view is gone, and asks the shell for its exit code.
func (x *tmux) code(want int) {
	x.t.Helper()
	x.until("the shell's screen", func(string) bool {
		return strings.TrimSpace(x.run("display-message", "-p", "#{alternate_on} #{pane_current_command}")) == "0 bash"
	})
	x.keys("echo code $?.", "Enter")
	x.shows(fmt.Sprintf("code %d.", want))
}

// asBefore runs a command line, and then checks that the terminal is as a shell
// wants it: echo, lines, the main screen, a cursor.
func (x *tmux) asBefore() {
	x.t.Helper()
	if got := strings.TrimSpace(x.run("display-message", "-p", "#{alternate_on} #{cursor_flag} #{mouse_any_flag} #{keypad_flag}")); got != "0 1 0 0" {
		x.t.Errorf("alternate screen, cursor, mouse, keypad: %s, want 0 1 0 0", got)
	}
	x.keys("clear; stty -a | tr ' ;' '\\n\\n' | grep -xE 'echo|icanon|isig|opost' | sort | xargs", "Enter")
	x.shows("echo icanon isig opost")
}
