package cli_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sema/internal/fixture/expect"
)

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
