//go:build linux

package fileengine

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sema/engine"
	"sema/internal/fixture/child"
	"sema/internal/fixture/expect"
)

func TestKilledHolderHandsOver(t *testing.T) {
	dir := t.TempDir()
	a := start(t, dir, 1)
	a.granted()
	b := start(t, dir, 1)
	b.Says("queued")
	a.kill(t)
	b.granted()
}

func TestKilledHeadOfTheQueueIsSucceeded(t *testing.T) {
	dir := t.TempDir()
	a := start(t, dir, 1)
	a.granted()
	var queue []process
	for range 4 {
		c := start(t, dir, 1)
		c.Says("queued")
		queue = append(queue, c)
	}
	queue[1].kill(t) // one in the middle
	queue[0].kill(t) // the one who watches the holder
	a.kill(t)        // whom now the third has to watch
	queue[2].granted()
	queue[2].Tell("go on")
	queue[3].granted()
}

func TestKilledWaiterIsPassedOver(t *testing.T) {
	dir := t.TempDir()
	a := openUser(t, openEngine(t, dir), "x", 1)
	held := a.take(t)
	b := start(t, dir, 1)
	b.Says("queued")
	c := start(t, dir, 1)
	c.Says("queued")
	b.kill(t)
	expect.OK(t, a.release(held))
	c.granted()
}

// The permit ends with the last process that has the engine's life open.
func TestLifeOutlivesTheEngine(t *testing.T) {
	dir := t.TempDir()
	a := process{child.Run(t, holderRole, holder{Dir: dir, Limit: 1, Hold: -1, Life: true})}
	var guard int
	a.Says("guard", &guard)
	a.granted()
	b := start(t, dir, 1)
	b.Says("queued")
	a.Kill()
	c := start(t, dir, 1) // comes later, and finds a's pipe without a
	c.Says("queued")
	u := openUser(t, openEngine(t, dir), "x", 1)
	if st := u.state(t); len(st.Holders) != 1 || len(st.Waiters) != 2 {
		t.Errorf("state %+v", st)
	}
	expect.OK(t, syscall.Kill(guard, syscall.SIGKILL))
	b.granted()
	b.Tell("go on")
	c.granted()
}

func TestNothingIsLeftBehind(t *testing.T) {
	dir := t.TempDir()
	for range 5 {
		c := start(t, dir, 10)
		c.granted()
		c.Kill()
	}
	old := time.Now().Add(-time.Hour)
	expect.OK(t, os.WriteFile(filepath.Join(dir, "fdead-0123"+tempSuffix), nil, 0o600))
	age := func() {
		files, err := filepath.Glob(filepath.Join(dir, "*"))
		expect.OK(t, err)
		for _, f := range files {
			expect.OK(t, os.Chtimes(f, old, old))
		}
	}
	age()
	e := openEngine(t, dir)
	u := openUser(t, e, "other", 1)
	expect.OK(t, u.release(u.take(t)))
	if st := openUser(t, e, "x", 1).state(t); len(st.Holders) != 0 {
		t.Errorf("state %+v", st)
	}
	expect.OK(t, e.Close())
	// The limits are remembered for a while.
	e = openEngine(t, dir)
	e.uptime = func() time.Duration { return uptime() + time.Hour }
	u = openUser(t, e, "third", 1)
	expect.OK(t, u.release(u.take(t)))
	if reply, err := u.call(engine.Request{Kind: engine.Remove}); err != nil || reply.Answers[0].Status != engine.Done {
		t.Errorf("remove: %+v, %v", reply, err)
	}
	age()
	expect.OK(t, e.Close())
	files, err := os.ReadDir(dir)
	expect.OK(t, err)
	for _, f := range files {
		if path := e.path(f.Name()); f.Name() != sweptFile && path != e.signOf(newestForm) {
			t.Errorf("left: %s", f.Name())
		}
	}
}

// Root and the members of a group use one directory, whoever came first. Only
// root can play all of them.
func TestSharedByUsersOfAGroup(t *testing.T) {
	if os.Getuid() != 0 {
		return
	}
	const group = 54321
	top := t.TempDir()
	expect.OK(t, os.Chmod(top, 0o755)) // whatever the umask
	expect.OK(t, os.Chmod(filepath.Dir(top), 0o755))
	program := filepath.Join(top, "program")
	text, err := os.ReadFile(os.Args[0])
	expect.OK(t, err)
	expect.OK(t, os.WriteFile(program, text, 0o755))
	dir := filepath.Join(top, "shared")
	expect.OK(t, os.Mkdir(dir, 0o700))
	expect.OK(t, os.Chown(dir, 0, group))
	expect.OK(t, os.Chmod(dir, 0o770|os.ModeSetgid))
	var complaint bytes.Buffer // of who may not
	as := func(uid, gid uint32) process {
		cmd, err := child.Command(holderRole, holder{Dir: dir, Limit: 1, Hold: -1, Shared: true})
		expect.OK(t, err)
		cmd.Path = program
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: gid}}
		if gid != group && gid != 0 {
			cmd.Stderr = &complaint
		}
		return process{child.RunCommand(t, cmd)}
	}
	root := as(0, 0)
	root.granted()
	alice := as(20001, group)
	alice.Says("queued")
	bob := as(20002, group)
	bob.Says("queued")
	if err := as(20003, 20003).Wait(expect.Within(t)); err == nil || !strings.Contains(complaint.String(), "permission denied") {
		t.Errorf("a stranger: %v; says %s", err, complaint.String())
	}
	root.kill(t)
	alice.granted()
	alice.Tell("go on")
	bob.granted()
	again := as(0, 0)
	again.Says("queued")
	bob.kill(t)
	again.granted()
}

// A disk that is full, as far as a process can have it without being root.
func TestFullDiskChangesNothing(t *testing.T) {
	dir := t.TempDir()
	u := openUser(t, openEngine(t, dir), "x", 1)
	held := u.take(t)
	info, err := os.Stat(logOf(dir))
	expect.OK(t, err)
	var old unix.Rlimit
	expect.OK(t, unix.Getrlimit(unix.RLIMIT_FSIZE, &old))
	expect.OK(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: uint64(info.Size()) + 10, Max: old.Max}))
	_, err = u.call(engine.Request{Kind: engine.Release, ID: held})
	expect.OK(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &old))
	var e *engine.Error
	if !errors.As(err, &e) || !e.NotExecuted || e.Temporary || e.Hint == "" {
		t.Fatalf("error %#v", err)
	}
	if after, err := os.Stat(logOf(dir)); err != nil || after.Size() != info.Size() {
		t.Errorf("%v bytes, %v; it had %d", after.Size(), err, info.Size())
	}
	if st := u.state(t); len(st.Holders) != 1 {
		t.Errorf("state %+v", st)
	}
	expect.OK(t, u.release(held))
}

// crowd is processes that wait for a permit, in this order, and who holds it.
type crowd struct {
	holder *user
	held   engine.ID
	all    []process
}

// queue starts n processes, each as the last one waits.
func queue(tb testing.TB, n int) *crowd {
	dir := tb.TempDir()
	c := &crowd{holder: openUser(tb, openEngine(tb, dir), "x", 1)}
	c.held = c.holder.take(tb)
	for range n {
		p := process{child.Run(tb, holderRole, holder{Dir: dir, Limit: 1, Hold: 5 * time.Millisecond})}
		p.Says("queued")
		c.all = append(c.all, p)
		c.renew(tb)
	}
	return c
}

func (c *crowd) renew(tb testing.TB) {
	tb.Helper()
	if got := c.holder.status(tb, engine.Request{Kind: engine.Renew, ID: c.held, Lease: c.holder.lease}); got != engine.Granted {
		tb.Fatalf("renewal: status %v", got)
	}
}

// handOffs has the processes take the permit one after the other, and returns how
// long each took to have it after the one before began to release it. That one is
// the one before it in the queue.
func handOffs(tb testing.TB, c *crowd) (took []time.Duration) {
	released := monotonic()
	expect.OK(tb, c.holder.release(c.held))
	for i, p := range c.all {
		d := time.Duration(p.granted() - released)
		if d < 0 {
			tb.Fatalf("process %d of %d has the permit %v before the one in front of it releases it", i, len(c.all), -d)
		}
		took = append(took, d)
		released = p.released()
	}
	return took
}

// processes is SEMA_STRESS, a number of processes.
func processes(tb testing.TB) int {
	text := os.Getenv("SEMA_STRESS")
	if text == "" {
		return 0
	}
	n, err := strconv.Atoi(text)
	expect.OK(tb, err)
	return n
}

// Each has the permit when the one in front of it is ready to release it, and not
// before. SEMA_STRESS is how many, up to some thousand.
func TestProcessesInOrder(t *testing.T) {
	n := processes(t)
	if n == 0 {
		t.Parallel()
		n = 40
	}
	handOffs(t, queue(t, n))
}

// BenchmarkIdle is the processor time of processes that wait, in thousandths of a
// core for all of them together. SEMA_STRESS is how many, SEMA_STRESS_IDLE for how
// long.
func BenchmarkIdle(b *testing.B) {
	n := max(processes(b), 20)
	idle := 2 * time.Second
	if n > 100 {
		idle = time.Minute
	}
	if d, err := time.ParseDuration(os.Getenv("SEMA_STRESS_IDLE")); err == nil {
		idle = d
	}
	for b.Loop() {
		c := queue(b, n)
		time.Sleep(3 * time.Second) // what comes after the start
		used := func() (all time.Duration) {
			for _, p := range c.all {
				all += p.Uses().CPU
			}
			return all
		}
		before := used()
		for end := time.Now().Add(idle); time.Now().Before(end); time.Sleep(time.Second) {
			c.renew(b)
		}
		b.ReportMetric(1000*(used()-before).Seconds()/idle.Seconds(), "millicores")
		handOffs(b, c)
	}
}
