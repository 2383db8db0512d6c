//go:build linux

package fileengine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sema/engine"
	"sema/internal/fixture/child"
	"sema/internal/fixture/expect"
	"sema/internal/protocol"
)

func TestKilledHeadOfTheQueueIsReplaced(t *testing.T) {
	dir := t.TempDir()
	a := start(t, dir, 1)
	a.granted()
	var queue []process
	for range 5 {
		c := start(t, dir, 1)
		c.Says("queued")
		queue = append(queue, c)
	}
	queue[1].kill(t) // in the middle of the queue
	queue[0].kill(t) // watches the holder
	a.kill(t)        // the holder, which the third waiter must watch now
	queue[2].granted()
	queue[3].kill(t) // while the holder lives
	queue[2].Tell("go on")
	queue[4].granted()
}

// The permit ends with the last process that has the file of Life open.
func TestLifeOutlivesTheEngine(t *testing.T) {
	dir := t.TempDir()
	a := process{child.Run(t, holderRole, holder{Dir: dir, Limit: 1, Hold: -1, Life: true})}
	var guard int
	a.Says("guard", &guard)
	a.granted()
	b := start(t, dir, 1)
	b.Says("queued")
	a.Kill()
	c := start(t, dir, 1) // finds the pipe of a still open, without a
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
	expect.OK(t, os.WriteFile(filepath.Join(dir, "fdead-0123"+tempSuffix), nil, 0o600))
	age(t, dir)
	e := openEngine(t, dir)
	u := openUser(t, e, "other", 1)
	expect.OK(t, u.release(u.take(t)))
	if st := openUser(t, e, "x", 1).state(t); len(st.Holders) != 0 {
		t.Errorf("state %+v", st)
	}
	expect.OK(t, e.Close())
	// The log keeps the limit for some time.
	e = openEngine(t, dir)
	shift(e, time.Hour, time.Hour)
	u = openUser(t, e, "third", 1)
	expect.OK(t, u.release(u.take(t)))
	if reply, err := u.call(protocol.Request{Kind: protocol.Remove}); err != nil || reply.Answers[0].Status != protocol.Done {
		t.Errorf("remove: %+v, %v", reply, err)
	}
	expect.OK(t, e.Close())
	for age(t, dir) > 0 { // until a sweep begins
		e := openEngine(t, dir)
		shift(e, time.Hour, time.Hour)
		expect.OK(t, e.ensureInbox(false))
		expect.OK(t, e.Close())
	}
}

// age makes all files of a directory old enough for a sweep, and returns their number.
func age(tb testing.TB, dir string) int {
	tb.Helper()
	old := time.Now().Add(-2 * sweepAge)
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	expect.OK(tb, err)
	for _, f := range files {
		expect.OK(tb, os.Chtimes(f, old, old))
	}
	return len(files)
}

// However quickly processes die and names fall out of use, their files become no more than those in use, whether each
// name has a process of its own or one process uses them all.
func TestSweepsKeepUp(t *testing.T) {
	const living, rounds = 50, 200
	dir := t.TempDir()
	for range living {
		expect.OK(t, openEngine(t, dir).ensureInbox(false))
	}
	var ahead atomic.Int64
	open := func() *Engine {
		e := openEngine(t, dir)
		e.uptime = func() time.Duration { return uptime() + time.Duration(ahead.Load()) }
		e.wall = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		return e
	}
	use := func(e *Engine, name int) { // and then its limit is forgotten
		u := openUser(t, e, strconv.Itoa(name), 1)
		expect.OK(t, u.release(u.take(t)))
		expect.OK(t, u.session.Close())
		ahead.Add(int64(time.Hour))
	}
	left := func(when string) {
		if n := age(t, dir); n > 2*living {
			t.Errorf("%s: %d files for %d processes", when, n, living)
		}
	}
	for i := range rounds {
		expect.OK(t, syscall.Mkfifo(filepath.Join(dir, fmt.Sprintf("fdead%d%s", i, lifeSuffix)), 0o600)) // of a killed process
		e := open()
		use(e, i)
		expect.OK(t, e.Close())
		age(t, dir)
	}
	left("processes that end")
	e := open()
	for i := range rounds {
		use(e, i)
	}
	age(t, dir)
	e.tick()
	left("a process that goes on")
}

// Root and the members of a group share a directory, whoever uses it first. Only root can
// run this test with all these users.
func TestSharedByUsersOfAGroup(t *testing.T) {
	if os.Getuid() != 0 {
		return
	}
	const group = 54321
	top := t.TempDir()
	expect.OK(t, os.Chmod(top, 0o755)) // regardless of the umask
	expect.OK(t, os.Chmod(filepath.Dir(top), 0o755))
	program := filepath.Join(top, "program")
	text, err := os.ReadFile(os.Args[0])
	expect.OK(t, err)
	expect.OK(t, os.WriteFile(program, text, 0o755))
	dir := filepath.Join(top, "shared")
	expect.OK(t, os.Mkdir(dir, 0o700))
	expect.OK(t, os.Chown(dir, 0, group))
	expect.OK(t, os.Chmod(dir, 0o770|os.ModeSetgid))
	var complaint bytes.Buffer // of the user outside of the group
	plays := func(uid, gid uint32, role string, job any) process {
		cmd, err := child.Command(role, job)
		expect.OK(t, err)
		cmd.Path = program
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: gid}}
		if gid != group && gid != 0 {
			cmd.Stderr = &complaint
		}
		return process{child.RunCommand(t, cmd)}
	}
	as := func(uid, gid uint32) process {
		return plays(uid, gid, holderRole, holder{Dir: dir, Limit: 1, Hold: -1, Shared: true})
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
	alice.Ends()
	again := as(0, 0)
	again.Says("queued")
	bob.kill(t)
	again.granted()
	again.Tell("go on")
	again.Ends()
	plays(20002, group, pinRole, dir).Ends()
	if got := mode(t, logOf(dir)); got != 0o660|os.ModeSticky {
		t.Errorf("mode of the log that bob pinned: %v", got)
	}
	// A new log can be used by the whole group at once.
	carol, dave := plays(20001, group, churnRole, dir), plays(20002, group, churnRole, dir)
	carol.Ends()
	dave.Ends()
}

// A step changes nothing on a full disk. A limit of the file size simulates it without
// root, in a process of its own: a limited test would also fail to write its log for go test.
func TestFullDiskChangesNothing(t *testing.T) {
	expect.OK(t, child.Run(t, fullDiskRole, t.TempDir()).Wait(expect.Within(t)))
}

func fullDisk(dir string) error {
	e, err := New(dir, nil)
	if err != nil {
		return err
	}
	u, err := newUser(e, "x", 1)
	if err != nil {
		return err
	}
	held, err := u.acquire()
	if err != nil {
		return err
	}
	before, err := os.Stat(logOf(dir))
	if err != nil {
		return err
	}
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &old); err != nil {
		return err
	}
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: uint64(before.Size()) + 10, Max: old.Max}); err != nil {
		return err
	}
	_, err = u.call(protocol.Request{Kind: protocol.Release, ID: held})
	var failure *engine.Error
	if !errors.As(err, &failure) || !failure.NotExecuted || failure.Temporary || failure.Hint == "" {
		return fmt.Errorf("the release on a full disk: error %#v", err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &old); err != nil {
		return err
	}
	if after, err := os.Stat(logOf(dir)); err != nil || after.Size() != before.Size() {
		return fmt.Errorf("the log had %d bytes; now %v, %v", before.Size(), after, err)
	}
	if st, err := u.session.State(context.Background()); err != nil || len(st.Holders) != 1 {
		return fmt.Errorf("state %+v, %v", st, err)
	}
	return u.release(held)
}

// waitingProcesses are processes in the order of their wait for a permit, and its holder.
type waitingProcesses struct {
	holder *user
	held   engine.ID
	all    []process
}

// queue starts n processes one after the other, each when the one before waits.
func queue(tb testing.TB, n int) *waitingProcesses {
	dir := tb.TempDir()
	c := &waitingProcesses{holder: openUser(tb, openEngine(tb, dir), "x", 1)}
	c.held = c.holder.take(tb)
	for range n {
		p := process{child.Run(tb, holderRole, holder{Dir: dir, Limit: 1, Hold: 5 * time.Millisecond})}
		p.Says("queued")
		c.all = append(c.all, p)
		c.renew(tb)
	}
	return c
}

func (c *waitingProcesses) renew(tb testing.TB) {
	tb.Helper()
	c.holder.wants(tb, protocol.Request{Kind: protocol.Renew, ID: c.held, Lease: c.holder.lease}, protocol.Granted)
}

// handOffs releases the permit, so that the processes get it one after the other. It
// returns for each process the time from the release before it to its own grant.
func handOffs(tb testing.TB, c *waitingProcesses) (took []time.Duration) {
	released := monotonic()
	expect.OK(tb, c.holder.release(c.held))
	for i, p := range c.all {
		d := time.Duration(p.granted() - released)
		if d < 0 {
			tb.Fatalf("process %d of %d has the permit %v before the release of its predecessor", i, len(c.all), -d)
		}
		took = append(took, d)
		released = p.released()
	}
	return took
}

// processes returns the number of processes in SEMA_STRESS.
func processes(tb testing.TB) int {
	text := os.Getenv("SEMA_STRESS")
	if text == "" {
		return 0
	}
	n, err := strconv.Atoi(text)
	expect.OK(tb, err)
	return n
}

// Waiting processes get the permit in order, each after the release of its predecessor.
// SEMA_STRESS sets their number, up to some thousand.
func TestProcessesInOrder(t *testing.T) {
	n := processes(t)
	if n == 0 {
		t.Parallel()
		n = 40
	}
	handOffs(t, queue(t, n))
}

// The head of the queue watches the holder, and each other waiter watches the one before
// it. A stopped head does not notice the holder's death, and no other process notices
// that. The waiters behind it wait until it continues, or until their own check every two
// minutes. SEMA_LOOK=1 waits for that check.
func TestHolderDiesWhileTheHeadStandsStill(t *testing.T) {
	dir := t.TempDir()
	first := start(t, dir, 1)
	first.granted()
	head := process{child.Run(t, holderRole, holder{Dir: dir, Limit: 1})}
	head.Says("queued")
	next := process{child.Run(t, holderRole, holder{Dir: dir, Limit: 1})}
	next.Says("queued")

	expect.OK(t, head.Stop())
	began := monotonic()
	first.kill(t)
	expect.OK(t, head.Continue())
	head.granted()
	at := next.granted()
	t.Logf("the holder died while the head stood still: the one behind it was served after %v", time.Duration(at-began).Round(time.Millisecond))
}
