//go:build linux

package fileengine

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sema/engine"
)

// The test binary runs itself as the processes of the tests.
const (
	roleVar  = "SEMA_FILE_TEST_ROLE"
	dirVar   = "SEMA_FILE_TEST_DIR"
	limitVar = "SEMA_FILE_TEST_LIMIT"
	holdVar  = "SEMA_FILE_TEST_HOLD"
	lifeVar  = "SEMA_FILE_TEST_LIFE"
)

// PlayRole makes this process what the test that started it wants. It reports
// false if no test has.
func PlayRole() bool {
	switch os.Getenv(roleVar) {
	case "":
		return false
	case "holder":
		play(holder)
	case "storm":
		play(storm)
	}
	return true
}

func play(role func() error) {
	if err := role(); err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
}

func monotonic() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	return t.Nano()
}

// holder waits for a permit, says so, keeps it for a while or until it is told
// to go on, and releases it.
func holder() error {
	limit, _ := strconv.Atoi(os.Getenv(limitVar))
	hold, _ := time.ParseDuration(os.Getenv(holdVar))
	e, err := New(os.Getenv(dirVar), nil)
	if err != nil {
		return err
	}
	u, err := newUser(e, "x", limit)
	if err != nil {
		return err
	}
	r := u.ask(true)
	reply, err := u.call(r)
	if err != nil {
		return err
	}
	if reply.Answers[0].Status == engine.Queued {
		fmt.Println("queued")
		for err = errAskAgain; err == errAskAgain; {
			if err = u.await(r.ID); err == errAskAgain {
				var again engine.Reply
				if again, err = u.call(r); err == nil && again.Answers[0].Status == engine.Queued {
					err = errAskAgain
				}
			}
		}
		if err != nil {
			return err
		}
	}
	if os.Getenv(lifeVar) != "" {
		life, err := e.Life()
		if err != nil {
			return err
		}
		guard := exec.Command("sleep", "1000")
		guard.ExtraFiles = []*os.File{life}
		if err := guard.Start(); err != nil {
			return err
		}
		fmt.Println("guard", guard.Process.Pid)
	}
	fmt.Println("granted", monotonic())
	if hold >= 0 {
		time.Sleep(hold)
	} else if _, err := os.Stdin.Read(make([]byte, 1)); err != nil {
		return err
	}
	fmt.Println("releases", monotonic())
	if err := u.release(r.ID); err != nil {
		return err
	}
	return e.Close()
}

// child is a process with the role of a holder.
type child struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan string
	gone  func() // waits for its end
}

// start starts a holder. A negative hold waits for goOn.
func start(tb testing.TB, dir string, limit int, hold time.Duration) *child {
	tb.Helper()
	return startRole(tb, "holder", dir, limit, hold)
}

func startRole(tb testing.TB, role, dir string, limit int, hold time.Duration) *child {
	tb.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleVar+"="+role, dirVar+"="+dir, limitVar+"="+strconv.Itoa(limit), holdVar+"="+hold.String(), "GORACE=atexit_sleep_ms=0")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must(tb, err)
	in, err := cmd.StdinPipe()
	must(tb, err)
	must(tb, cmd.Start())
	c := &child{cmd: cmd, in: in, lines: make(chan string, 10)}
	var done sync.WaitGroup
	done.Go(func() {
		for s := bufio.NewScanner(out); s.Scan(); {
			c.lines <- s.Text()
		}
		close(c.lines)
	})
	c.gone = sync.OnceFunc(func() {
		for range c.lines {
		}
		done.Wait()
		_ = cmd.Wait()
	})
	tb.Cleanup(func() {
		_ = cmd.Process.Kill()
		c.gone()
	})
	return c
}

// says wants the next line to begin with a word, and returns the number after
// it.
func (c *child) says(tb testing.TB, word string) int64 {
	tb.Helper()
	select {
	case line, ok := <-c.lines:
		got, number, _ := strings.Cut(line, " ")
		if !ok || got != word {
			tb.Fatalf("process %d says %q instead of %q", c.cmd.Process.Pid, line, word)
		}
		n, _ := strconv.ParseInt(number, 10, 64)
		return n
	case <-time.After(time.Minute):
		tb.Fatalf("process %d does not say %q", c.cmd.Process.Pid, word)
		return 0
	}
}

func (c *child) goOn(tb testing.TB) {
	tb.Helper()
	_, err := c.in.Write([]byte{1})
	must(tb, err)
}

func (c *child) kill(tb testing.TB) { tb.Helper(); must(tb, c.cmd.Process.Signal(syscall.SIGKILL)) }

// cpu is the processor time of a process so far.
func (c *child) cpu(tb testing.TB) (used time.Duration) {
	tb.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", c.cmd.Process.Pid))
	must(tb, err)
	for _, thread := range threads {
		stat, _ := os.ReadFile(thread) // a thread may end meanwhile
		ns, _, _ := strings.Cut(string(stat), " ")
		n, _ := strconv.ParseInt(ns, 10, 64)
		used += time.Duration(n)
	}
	return used
}

func TestKilledHolderHandsOver(t *testing.T) {
	dir := t.TempDir()
	a := start(t, dir, 1, -1)
	a.says(t, "granted")
	b := start(t, dir, 1, -1)
	b.says(t, "queued")
	a.kill(t)
	b.says(t, "granted")
}

func TestKilledHeadOfTheQueueIsSucceeded(t *testing.T) {
	dir := t.TempDir()
	a := start(t, dir, 1, -1)
	a.says(t, "granted")
	var queue []*child
	for range 4 {
		c := start(t, dir, 1, -1)
		c.says(t, "queued")
		queue = append(queue, c)
	}
	queue[1].kill(t) // one in the middle
	queue[0].kill(t) // the one who watches the holder
	a.kill(t)        // whom now the third has to watch
	queue[2].says(t, "granted")
	queue[2].goOn(t)
	queue[3].says(t, "granted")
}

func TestKilledWaiterIsPassedOver(t *testing.T) {
	dir := t.TempDir()
	a := openUser(t, openEngine(t, dir), "x", 1)
	held := a.take(t)
	b := start(t, dir, 1, -1)
	b.says(t, "queued")
	c := start(t, dir, 1, -1)
	c.says(t, "queued")
	b.kill(t)
	must(t, a.release(held))
	c.says(t, "granted")
}

// The permit ends with the last process that has the engine's life open.
func TestLifeOutlivesTheEngine(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(lifeVar, "1")
	a := start(t, dir, 1, -1)
	guard := int(a.says(t, "guard"))
	a.says(t, "granted")
	t.Setenv(lifeVar, "")
	b := start(t, dir, 1, -1)
	b.says(t, "queued")
	a.kill(t)
	a.gone()
	c := start(t, dir, 1, -1) // comes later, and finds a's pipe without a
	c.says(t, "queued")
	u := openUser(t, openEngine(t, dir), "x", 1)
	if st := u.state(t); len(st.Holders) != 1 || len(st.Waiters) != 2 {
		t.Errorf("state %+v", st)
	}
	must(t, syscall.Kill(guard, syscall.SIGKILL))
	b.says(t, "granted")
	b.goOn(t)
	c.says(t, "granted")
}

func TestNothingIsLeftBehind(t *testing.T) {
	dir := t.TempDir()
	for range 5 {
		c := start(t, dir, 10, -1)
		c.says(t, "granted")
		c.kill(t)
		c.gone()
	}
	old := time.Now().Add(-time.Hour)
	must(t, os.WriteFile(filepath.Join(dir, "fdead-0123"+tempSuffix), nil, 0o600))
	age := func() {
		files, err := filepath.Glob(filepath.Join(dir, "*"))
		must(t, err)
		for _, f := range files {
			must(t, os.Chtimes(f, old, old))
		}
	}
	age()
	e := openEngine(t, dir)
	u := openUser(t, e, "other", 1)
	must(t, u.release(u.take(t)))
	if st := openUser(t, e, "x", 1).state(t); len(st.Holders) != 0 {
		t.Errorf("state %+v", st)
	}
	must(t, e.Close())
	// The limits are remembered for a while.
	e = openEngine(t, dir)
	e.uptime = func() time.Duration { return uptime() + time.Hour }
	u = openUser(t, e, "third", 1)
	must(t, u.release(u.take(t)))
	if reply, err := u.call(engine.Request{Kind: engine.Remove}); err != nil || reply.Answers[0].Status != engine.Done {
		t.Errorf("remove: %+v, %v", reply, err)
	}
	age()
	must(t, e.Close())
	files, err := os.ReadDir(dir)
	must(t, err)
	for _, f := range files {
		if f.Name() != sweptFile {
			t.Errorf("left: %s", f.Name())
		}
	}
}

// A disk that is full, as far as a process can have it without being root.
func TestFullDiskChangesNothing(t *testing.T) {
	dir := t.TempDir()
	u := openUser(t, openEngine(t, dir), "x", 1)
	held := u.take(t)
	info, err := os.Stat(logOf(dir))
	must(t, err)
	var old unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_FSIZE, &old))
	must(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: uint64(info.Size()) + 10, Max: old.Max}))
	_, err = u.call(engine.Request{Kind: engine.Release, ID: held})
	must(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &old))
	var e *engine.Error
	if !errorAs(err, &e) || !e.NotExecuted || !e.Temporary || e.Hint == "" {
		t.Fatalf("error %#v", err)
	}
	if after, err := os.Stat(logOf(dir)); err != nil || after.Size() != info.Size() {
		t.Errorf("%v bytes, %v; it had %d", after.Size(), err, info.Size())
	}
	if st := u.state(t); len(st.Holders) != 1 {
		t.Errorf("state %+v", st)
	}
	must(t, u.release(held))
}

// run has n processes take one permit after the other, and returns how long
// each hand-off took, and the processor time that all waiters used in idle.
func run(tb testing.TB, n int, idle time.Duration) (handOffs []time.Duration, used time.Duration) {
	dir := tb.TempDir()
	u := openUser(tb, openEngine(tb, dir), "x", 1)
	held := u.take(tb)
	waiters := make([]*child, n)
	for i := range waiters {
		waiters[i] = start(tb, dir, 1, 5*time.Millisecond)
		waiters[i].says(tb, "queued")
	}
	if idle > 0 {
		time.Sleep(3 * time.Second) // what comes after the start
		for _, c := range waiters {
			used -= c.cpu(tb)
		}
		for end := time.Now().Add(idle); time.Now().Before(end); time.Sleep(time.Second) {
			if _, err := u.call(engine.Request{Kind: engine.Renew, ID: held, Lease: u.lease}); err != nil {
				tb.Fatal(err)
			}
		}
		for _, c := range waiters {
			used += c.cpu(tb)
		}
	}
	released := monotonic()
	must(tb, u.release(held))
	for _, c := range waiters {
		handOffs = append(handOffs, time.Duration(c.says(tb, "granted")-released))
		released = c.says(tb, "releases")
	}
	slices.Sort(handOffs)
	return handOffs, used
}

func TestProcessesInOrder(t *testing.T) {
	for _, n := range []int{1, 40} {
		handOffs, _ := run(t, n, 0)
		for n == 1 && len(handOffs) < 9 { // as one tells little
			more, _ := run(t, n, 0)
			handOffs = append(handOffs, more...)
		}
		slices.Sort(handOffs)
		t.Logf("%d waiters: median hand-off %v, longest %v", n, handOffs[len(handOffs)/2], handOffs[len(handOffs)-1])
	}
}

// Set SEMA_STRESS to the number of processes, up to some thousand.
func TestStressOfProcesses(t *testing.T) {
	n, _ := strconv.Atoi(os.Getenv("SEMA_STRESS"))
	if n == 0 {
		n = 20
	}
	idle := 2 * time.Second
	if n > 100 {
		idle = time.Minute
	}
	if d, err := time.ParseDuration(os.Getenv("SEMA_STRESS_IDLE")); err == nil {
		idle = d
	}
	began := time.Now()
	handOffs, used := run(t, n, idle)
	t.Logf("%d waiters: idle for %v they used %v together (%.2f %% of a core); median hand-off %v, p90 %v, longest %v; in all %v",
		n, idle, used, 100*used.Seconds()/idle.Seconds(), handOffs[n/2], handOffs[n*9/10], handOffs[n-1], time.Since(began))
}
