package cli_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sema/internal/fixture/expect"
)

// terminal is a sema that runs on a terminal of its own, as the only job of a
// session. The test plays the user.
type terminal struct {
	t      testing.TB
	master *os.File
	cmd    *exec.Cmd
	seen   bytes.Buffer
}

func onTerminal(t testing.TB, url string, args ...string) *terminal {
	t.Helper()
	ofProcesses(t)
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	expect.OK(t, err)
	master := os.NewFile(uintptr(fd), "ptmx")
	t.Cleanup(func() { _ = master.Close() })
	expect.OK(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	expect.OK(t, err)
	expect.OK(t, unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80}))
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	expect.OK(t, err)
	defer func() { _ = slave.Close() }()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "SEMA_URL="+url, "TERM=xterm")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	expect.OK(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return &terminal{t: t, master: master, cmd: cmd}
}

func (x *terminal) kind(text string) {
	x.t.Helper()
	if _, err := x.master.WriteString(text); err != nil {
		x.t.Fatal(err)
	}
}

// shows waits until the terminal has shown a text.
func (x *terminal) shows(text string) {
	x.t.Helper()
	x.waits(text, func(seen string) bool { return strings.Contains(seen, text) })
}

// waits reads what the terminal shows until it is enough.
func (x *terminal) waits(what string, enough func(seen string) bool) {
	x.t.Helper()
	_ = x.master.SetReadDeadline(time.Now().Add(expect.Patience))
	buf := make([]byte, 4096)
	for !enough(x.seen.String()) {
		n, err := x.master.Read(buf)
		x.seen.Write(buf[:n])
		if err != nil {
			x.t.Fatalf("%v; the terminal has not shown %q but %q", err, what, x.seen.String())
		}
	}
}

// never fails if the terminal has shown one of these.
func (x *terminal) never(texts ...string) {
	x.t.Helper()
	for _, text := range texts {
		if strings.Contains(x.seen.String(), text) {
			x.t.Fatalf("the terminal has shown %q: %q", text, x.seen.String())
		}
	}
}

// forget has shows wait for what comes from now on.
func (x *terminal) forget() { x.seen.Reset() }

// pid waits for a process id that the terminal shows after a word, before a dot.
func (x *terminal) pid(word string) (pid int) {
	x.t.Helper()
	found := regexp.MustCompile(word + `([0-9]+)\.`)
	x.waits(found.String(), func(seen string) bool {
		m := found.FindStringSubmatch(seen)
		if m != nil {
			pid, _ = strconv.Atoi(m[1])
		}
		return m != nil
	})
	return pid
}

// stopped waits until a process has been stopped: until then it may still read
// what is typed.
func stopped(t testing.TB, pid int) {
	t.Helper()
	expect.Until(t, "the stop of the command", func() bool { return state(pid) == 'T' })
}

// state is the state of a process as /proc has it; 0: there is no such process.
func state(pid int) byte {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	_, rest, ok := strings.Cut(string(text), ") ")
	if err != nil || !ok {
		return 0
	}
	return rest[0]
}

func (x *terminal) exits(want int) {
	x.t.Helper()
	_ = x.cmd.Wait()
	if got := shellCode(x.cmd.ProcessState); got != want {
		x.t.Fatalf("exit code %d, want %d; seen %q", got, want, x.seen.String())
	}
}

func TestACommandAtATerminal(t *testing.T) {
	for _, c := range []struct {
		types, shows string
		code         int
		args         []string
	}{
		{"words\n", "got words", 0, []string{"sema", "run", "tty", "--", "sh", "-c", `echo ready; read x; echo "got $x"`}},
		{"\x03", "", 130, []string{"sema", "run", "tty", "--", "sh", "-c", `echo ready; read x`}},
		// in a pipeline the terminal is not given away until the command wants it
		{"words\n", "got words", 0, []string{"bash", "-c", `sema run tty -- sh -c 'echo ready; read x </dev/tty; echo "got $x"' | cat`}},
	} {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			x := onTerminal(t, fileURL(t), c.args...)
			x.shows("ready")
			x.kind(c.types)
			x.shows(c.shows)
			x.exits(c.code)
		})
	}
}

func TestLiveLine(t *testing.T) {
	onEngines(t, func(t *testing.T, url string) {
		l := look(t, url, "live")
		holder := start(t, url, "run", "--label", "the holder", "live", "--", "cat")
		l.counts(1, 0)
		x := onTerminal(t, url, "sema", "run", "live", "--", "echo", "done")
		x.shows(" for live: 1 of 1 held by the holder@")
		x.shows("), you are next")
		x.waits("another time", func(seen string) bool { // which of them depends on the machine
			times := map[string]bool{}
			for _, found := range regexp.MustCompile("sema: has waited ([0-9]+)s for live").FindAllString(seen, -1) {
				times[found] = true
			}
			return len(times) > 1
		})
		_ = holder.stdin.Close()
		holder.exits(0)
		x.shows("\r\x1b[Kdone")
		x.exits(0)
	})
}

// A wait that a key ends leaves neither line nor ticket.
func TestInterruptKeyWhileWaiting(t *testing.T) {
	t.Parallel()
	url := fileURL(t)
	l := look(t, url, "live")
	start(t, url, "run", "live", "--", "cat")
	l.counts(1, 0)
	x := onTerminal(t, url, "sema", "run", "live", "--", "echo", "never")
	x.shows("you are next")
	x.kind("\x03")
	x.exits(130)
	l.counts(1, 0)
}
