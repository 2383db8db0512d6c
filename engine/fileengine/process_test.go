//go:build linux

package fileengine

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sema/engine"
)

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

// Root and the members of a group use one directory, whoever came first. Only
// root can play all of them.
func TestSharedByUsersOfAGroup(t *testing.T) {
	if os.Getuid() != 0 {
		return
	}
	const group = 54321
	top := t.TempDir()
	must(t, os.Chmod(top, 0o755)) // whatever the umask
	must(t, os.Chmod(filepath.Dir(top), 0o755))
	program := filepath.Join(top, "program")
	text, err := os.ReadFile(os.Args[0])
	must(t, err)
	must(t, os.WriteFile(program, text, 0o755))
	dir := filepath.Join(top, "shared")
	must(t, os.Mkdir(dir, 0o700))
	must(t, os.Chown(dir, 0, group))
	must(t, os.Chmod(dir, 0o770|os.ModeSetgid))
	as := func(uid, gid uint32) *child {
		cmd := exec.Command(program)
		cmd.Env = append(os.Environ(), roleVar+"=holder", dirVar+"="+dir, limitVar+"=1", holdVar+"=-1s", sharedVar+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: gid}}
		return startCommand(t, cmd)
	}
	root := as(0, 0)
	root.says(t, "granted")
	alice := as(20001, group)
	alice.says(t, "queued")
	bob := as(20002, group)
	bob.says(t, "queued")
	stranger := as(20003, 20003)
	stranger.says(t, "error")
	root.kill(t)
	alice.says(t, "granted")
	alice.goOn(t)
	bob.says(t, "granted")
	again := as(0, 0)
	again.says(t, "queued")
	bob.kill(t)
	again.says(t, "granted")
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
