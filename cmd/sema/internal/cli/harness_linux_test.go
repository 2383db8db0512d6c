package cli_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sema"
	"sema/engines/fileengine"
	"sema/engines/redisengine"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/opened"
)

// job is a running sema, with its command's output at hand.
type job struct {
	t      testing.TB
	cmd    *exec.Cmd
	output *os.File // of sema and all that it starts: its end is the end of all of them
	lines  *bufio.Reader
	stdin  *os.File
	life   *os.File // ends when the command's processes that opened $LIFELINE have ended
	stderr words
	done   chan int // the exit code
}

// start runs sema on an engine. Its standard input stays open until the test
// closes it; standard output goes to the job's lines.
func start(t testing.TB, url string, args ...string) *job {
	t.Helper()
	ofProcesses(t)
	j := &job{t: t, cmd: exec.Command("sema", args...), done: make(chan int, 1)}
	lifeline := filepath.Join(t.TempDir(), "lifeline")
	expect.OK(t, syscall.Mkfifo(lifeline, 0o600))
	var err error
	if j.life, err = os.OpenFile(lifeline, os.O_RDONLY|syscall.O_NONBLOCK, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.life.Close() })
	j.cmd.Env = append(os.Environ(), "SEMA_URL="+url, "LIFELINE="+lifeline)
	read, write := pipe(t)
	in, stdin := pipe(t)
	j.output, j.lines, j.stdin = read, bufio.NewReader(read), stdin
	j.cmd.Stdin, j.cmd.Stdout, j.cmd.Stderr = in, write, &j.stderr
	// A group of its own, as a shell would make for a job.
	j.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	j.cmd.WaitDelay = expect.Patience
	expect.OK(t, j.cmd.Start())
	_, _ = write.Close(), in.Close()
	go func() {
		_ = j.cmd.Wait()
		j.done <- shellCode(j.cmd.ProcessState)
	}()
	t.Cleanup(func() { _ = j.cmd.Process.Kill() })
	return j
}

func pipe(t testing.TB) (read, write *os.File) {
	t.Helper()
	read, write, err := os.Pipe()
	expect.OK(t, err)
	t.Cleanup(func() { _, _ = read.Close(), write.Close() })
	return read, write
}

// line is the next line of output.
func (j *job) line() string {
	j.t.Helper()
	_ = j.output.SetReadDeadline(time.Now().Add(expect.Patience))
	text, err := j.lines.ReadString('\n')
	if err != nil {
		j.t.Fatalf("no line: %v", err)
	}
	return strings.TrimSuffix(text, "\n")
}

// expect waits for a line.
func (j *job) expect(want string) {
	j.t.Helper()
	if got := j.line(); got != want {
		j.t.Fatalf("line %q, want %q", got, want)
	}
}

// dead waits until every process that holds the output is gone, and says when
// that was.
func (j *job) dead() time.Time {
	j.t.Helper()
	_ = j.output.SetReadDeadline(time.Now().Add(expect.Patience))
	for {
		_, err := j.lines.ReadString('\n')
		if errors.Is(err, os.ErrDeadlineExceeded) {
			j.t.Fatal("the command's processes do not end")
		}
		if err != nil {
			return time.Now()
		}
	}
}

// commandDead waits until every process of a command that opened $LIFELINE is
// gone, and says when that was. sema may live on.
func (j *job) commandDead() time.Time {
	j.t.Helper()
	_ = j.life.SetReadDeadline(time.Now().Add(expect.Patience))
	if _, err := j.life.Read(make([]byte, 1)); err != io.EOF {
		j.t.Fatalf("the command's processes do not end: %v", err)
	}
	return time.Now()
}

// commandIsDead says whether every process of a command that opened $LIFELINE is
// gone at this moment.
func (j *job) commandIsDead() bool {
	j.t.Helper()
	raw, err := j.life.SyscallConn()
	expect.OK(j.t, err)
	n := -1
	if err := raw.Read(func(fd uintptr) bool {
		n, _ = syscall.Read(int(fd), make([]byte, 1)) // no writer: 0; else EAGAIN
		return true
	}); err != nil {
		j.t.Fatal(err)
	}
	return n == 0
}

// code waits for sema's end.
func (j *job) code() int {
	j.t.Helper()
	select {
	case code := <-j.done:
		return code
	case <-time.After(expect.Patience):
		j.t.Fatal("sema does not end")
		return 0
	}
}

func (j *job) exits(want int) {
	j.t.Helper()
	if got := j.code(); got != want {
		j.t.Fatalf("exit code %d, want %d; stderr: %s", got, want, j.stderr.String())
	}
}

// says waits until sema, or its command, has said something on standard error.
func (j *job) says(text string) {
	j.t.Helper()
	for end := time.Now().Add(expect.Patience); !strings.Contains(j.stderr.String(), text); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			j.t.Fatalf("never said %q, but: %s", text, j.stderr.String())
		}
	}
}

// words is what was said so far.
type words struct {
	mu   sync.Mutex
	text strings.Builder
}

func (w *words) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(p)
}

func (w *words) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

func (j *job) signal(s syscall.Signal) {
	j.t.Helper()
	expect.OK(j.t, j.cmd.Process.Signal(s))
}

// looker looks at one semaphore.
type looker struct {
	t      testing.TB
	engine sema.Engine
	s      *sema.Semaphore
}

func look(t testing.TB, url, name string) *looker {
	t.Helper()
	var engine sema.Engine
	if dir, ok := strings.CutPrefix(url, "file://"); ok {
		e, err := fileengine.New(dir, nil)
		expect.OK(t, err)
		engine = e
	} else {
		o, err := redis.ParseURL(url)
		expect.OK(t, err)
		rdb := redis.NewClient(o)
		t.Cleanup(func() { _ = rdb.Close() })
		e, err := redisengine.New(rdb, nil)
		expect.OK(t, err)
		engine = e
	}
	t.Cleanup(func() { _ = engine.Close() })
	s := opened.Semaphore(t, engine, name, 1, nil)
	return &looker{t, engine, s}
}

func (l *looker) state() sema.State {
	l.t.Helper()
	st, err := l.s.State(context.Background())
	expect.OK(l.t, err)
	return st
}

// until waits for a state.
func (l *looker) until(what string, ok func(sema.State) bool) sema.State {
	l.t.Helper()
	for end := time.Now().Add(expect.Patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if st := l.state(); ok(st) {
			return st
		}
	}
	l.t.Fatalf("never seen: %s; last %+v", what, l.state())
	return sema.State{}
}

func (l *looker) counts(holders, waiters int) sema.State {
	l.t.Helper()
	return l.until("holders and waiters", func(st sema.State) bool {
		return len(st.Holders) == holders && len(st.Waiters) == waiters
	})
}

// children are the processes whose parent is the given one.
func children(t *testing.T, parent int) (pids []int) {
	t.Helper()
	threads, err := filepath.Glob("/proc/" + strconv.Itoa(parent) + "/task/*/children")
	expect.OK(t, err)
	for _, thread := range threads {
		list, _ := os.ReadFile(thread) // a thread that ended meanwhile has none
		for _, child := range strings.Fields(string(list)) {
			pid, err := strconv.Atoi(child)
			expect.OK(t, err)
			pids = append(pids, pid)
		}
	}
	return pids
}

// guardOf finds the guard among a sema's children.
func guardOf(t *testing.T, parent int) int {
	t.Helper()
	for _, pid := range children(t, parent) {
		name, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/comm")
		if strings.TrimSpace(string(name)) == "permit-guard" {
			return pid
		}
	}
	t.Fatal("no guard")
	return 0
}
