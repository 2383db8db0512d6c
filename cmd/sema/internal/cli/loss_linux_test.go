package cli_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sys/unix"

	"sema"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
	"sema/internal/fixture/stall"
)

// stubborn is a command of two processes that ignore TERM.
// The lifeline has a high number: of a process that ends, Linux releases the last of its files first, and 100 keeps the permit.
const stubborn = `exec 200>"$LIFELINE"; trap 'echo term' TERM; (trap '' TERM; echo ready; while :; do sleep 1; done) & while :; do wait; done`

// leaseEnd is when the server lets go of the only holder, as its own record
// says. Server and test share a clock.
func leaseEnd(t testing.TB, c *redis.Client, name string) time.Time {
	t.Helper()
	z, err := c.ZRangeByScoreWithScores(context.Background(), "sema:{"+name+"}:holders", &redis.ZRangeBy{Min: "-inf", Max: "(+inf"}).Result()
	if err != nil || len(z) != 1 {
		t.Fatalf("holders in Redis: %v, %v", z, err)
	}
	return time.UnixMicro(int64(z[0].Score))
}

// renewed waits for a renewal and says when the lease then ends. The next
// renewal is a good while off.
func renewed(t testing.TB, c *redis.Client, name string) time.Time {
	t.Helper()
	for first := leaseEnd(t, c, name); ; time.Sleep(time.Millisecond) {
		if end := leaseEnd(t, c, name); end.After(first) {
			return end
		}
	}
}

// The command's last process dies before the lease ends, if the server falls silent, or sema is stopped: then it
// cannot do anything, but its guard can.
func TestTheCommandDiesBeforeItsLeaseEnds(t *testing.T) {
	ofProcesses(t)
	t.Parallel()
	for what, hit := range map[string]func(s *redistest.Server, j *job) (back func()){
		"Redis falls silent": func(s *redistest.Server, j *job) func() {
			s.Stop()
			j.expect("term")
			return func() { j.says("permit lost: not renewed in time") }
		},
		"sema is stopped": func(_ *redistest.Server, j *job) func() {
			j.signal(syscall.SIGSTOP)
			return func() { j.signal(syscall.SIGCONT) }
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			stall.Run(t, func(t *stall.Case) {
				s := redistest.Start(t)
				j := start(t, s.URL(), "run", "--lease", "4s", "x", "--", "bash", "-c", stubborn)
				j.expect("ready")
				end := renewed(t, s.Client(), "x")
				back := hit(s, j)
				if died := j.commandDead(); died.After(end) {
					t.Fatalf("the last process died %v after the end of the lease", died.Sub(end))
				}
				back()
				j.exits(76)
			})
		})
	}
}

// Without --wait a wait is for ever: an engine that is away for longer than the lease
// is borne, behind a server and directly, and standard error says that it is away.
func TestAWaitOutlivesAnOutage(t *testing.T) {
	ofProcesses(t)
	t.Parallel()
	for _, through := range []string{"redis", "serve"} {
		t.Run(through, func(t *testing.T) {
			t.Parallel()
			r := redistest.Start(t)
			url, args := r.URL(), []string{"--url", r.URL()}
			var s *served
			if through == "serve" {
				s = serve(t, args...)
				url = s.url
			}
			permit := strings.TrimSpace(ok(t, "SEMA_URL="+url, "acquire", "--lease", "10m", "x"))
			j := start(t, url, "run", "--lease", "5s", "x", "--", "echo", "mine")
			look(t, r.URL(), "x").counts(1, 1)
			if s != nil {
				expect.OK(t, s.cmd.Process.Kill())
				<-s.logs
			} else {
				r.Stop()
			}
			j.says("the engine is away, waiting on")
			time.Sleep(7 * time.Second) // longer than the lease
			if s != nil {
				serve(t, append(args, "--listen", strings.TrimPrefix(url, "http://"))...)
			} else {
				r.Continue()
			}
			ok(t, "SEMA_URL="+url, "release", "x", permit)
			j.expect("mine")
			j.exits(0)
		})
	}
}

func TestOnLostWarn(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	j := start(t, s.URL(), "run", "--lease", "2s", "--on-lost=warn", "warned", "--", "sh", "-c", `echo ready; read x; echo "$x"; exit 5`)
	j.expect("ready")
	s.Client().FlushAll(context.Background())
	j.says("the command runs on without a permit")
	if _, err := j.stdin.WriteString("still here\n"); err != nil {
		t.Fatal(err)
	}
	j.expect("still here")
	j.exits(5)
}

func TestRevoked(t *testing.T) {
	onEngines(t, func(t *testing.T, url string) {
		l := look(t, url, "revoked")
		j := start(t, url, "run", "--lease", "10s", "revoked", "--", "sh", "-c", "trap 'echo bye; exit 0' TERM; echo ready; sleep 30 & wait")
		j.expect("ready")
		st := l.counts(1, 0)
		start(t, url, "revoke", "revoked", st.Holders[0].ID).exits(0)
		j.expect("bye")
		j.exits(76) // whatever the command's own code was
		j.says("revoked by an operator: \"revoked\"; stopping the command")
		if st := l.state(); len(st.Holders) != 0 {
			t.Errorf("%+v", st.Holders)
		}
	})
}

// Issue: "ten of ten revoked commands that ignored TERM were told that sema had
// been stopped". And what left the command's process group is ended with it.
func TestRevokedCommandIgnoresTerm(t *testing.T) {
	onEngines(t, func(t *testing.T, url string) {
		l := look(t, url, "stubborn")
		j := start(t, url, "run", "--lease", "10s", "--kill-after", "100ms", "stubborn", "--", "bash", "-c",
			`exec 200>"$LIFELINE"; trap '' TERM; setsid bash -c 'trap "" TERM; echo ready; while :; do sleep 1; done' & while :; do sleep 1; done`)
		j.expect("ready")
		st := l.counts(1, 0)
		start(t, url, "revoke", "stubborn", st.Holders[0].ID).exits(0)
		j.exits(76)
		j.commandDead()
		if said := j.stderr.String(); !strings.Contains(said, "revoked by an operator: \"stubborn\"; stopping the command") || strings.Contains(said, "had been stopped") {
			t.Errorf("said %q", said)
		}
	})
}

// A command that ends between the loss and its discovery may have run beside
// another.
func TestLossIsFoundAtTheEnd(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	j := start(t, s.URL(), "run", "late", "--", "cat")
	look(t, s.URL(), "late").counts(1, 0)
	s.Client().FlushAll(context.Background())
	_ = j.stdin.Close()
	j.exits(76)
	j.says("the command had ended by itself, with exit code 0")
}

// Issue: "kill -9 of sema while its guard process is stopped (5 of 5): the next
// starts beside the old group".
func TestKillMinusNineOfSemaWhileItsGuardIsStopped(t *testing.T) {
	t.Parallel()
	url := fileURL(t)
	for range 5 {
		j := start(t, url, "run", "killed", "--", "bash", "-c", stubborn)
		j.expect("ready")
		expect.OK(t, syscall.Kill(guardOf(t, j.cmd.Process.Pid), syscall.SIGSTOP))
		j.signal(syscall.SIGKILL)
		next := start(t, url, "run", "killed", "--", "echo", "mine")
		next.expect("mine")
		// Both processes of the command have ended before.
		if !j.commandIsDead() {
			t.Fatal("the next has started beside the old command")
		}
		next.exits(0)
		j.dead()
	}
}

// Issue: the same when the whole process group is killed, in which the guard is not. If the guard is killed as well, the
// command's processes live on, and the permit stays with them.
func TestKillMinusNineOfSeveral(t *testing.T) {
	for what, kill := range map[string]func(sema, guard int) error{
		"the process group": func(sema, _ int) error { return syscall.Kill(-sema, syscall.SIGKILL) },
		"sema and its guard": func(sema, guard int) error {
			return errors.Join(syscall.Kill(sema, syscall.SIGSTOP), syscall.Kill(guard, syscall.SIGKILL), syscall.Kill(sema, syscall.SIGKILL))
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			url := fileURL(t)
			j := start(t, url, "run", "killed", "--", "bash", "-c", `setsid bash -c 'exec 200>"$LIFELINE"; echo ready; sleep 2' & wait`)
			j.expect("ready")
			expect.OK(t, kill(j.cmd.Process.Pid, guardOf(t, j.cmd.Process.Pid)))
			next := start(t, url, "run", "killed", "--", "echo", "mine")
			next.expect("mine")
			if !j.commandIsDead() {
				t.Fatal("the next has started beside the old command")
			}
			next.exits(0)
		})
	}
}

// No command runs before its guard has left the process group: what kills the
// group with SIGKILL would kill the guard, and what has left the group would go on.
func TestNoCommandRunsBesideAGuardInItsGroup(t *testing.T) {
	t.Parallel()
	url := fileURL(t)
	for range 20 {
		j := start(t, url, "run", "early", "--", "bash", "-c",
			`read -r _ _ _ _ guard _ </proc/$PPID/stat; read -r _ _ _ _ own _ </proc/$$/stat; echo $((guard != own))`)
		j.expect("1")
		j.exits(0)
	}
}

// The command ends with its guard. Then sema reports that, and ends as the
// command did.
func TestKillMinusNineOfTheGuard(t *testing.T) {
	t.Parallel()
	url := fileURL(t)
	j := start(t, url, "run", "killed", "--", "bash", "-c", stubborn)
	j.expect("ready")
	expect.OK(t, syscall.Kill(guardOf(t, j.cmd.Process.Pid), syscall.SIGKILL))
	j.exits(128 + 9)
	j.says("the process that guards the command was killed, and the command with it")
	j.dead() // both processes of the command
	look(t, url, "killed").counts(0, 0)
}

// jealous is a command whose processes all keep a lock, and which writes down
// if somebody else's still have it: the kernel judges whether two overlap. It
// has a busy child, a busy grandchild in a session of its own, and both start
// processes all the time.
const jealous = `
exec 9>>"$0"
flock -n 9 || echo overlap >>"$0"
busy() { while :; do sleep 0.002; done; }
export -f busy
busy &
(setsid bash -c busy &)
echo start >>"$0"
busy`

// Issue: "kill -9 of sema at random moments with busy children and
// grandchildren, 1,000 times: no overlap at all"; "kill -9 of sema while its
// guard process is stopped (5 of 5) or slow: the next starts beside the old
// group".
func TestKillMinusNineAtRandomMoments(t *testing.T) {
	t.Parallel()
	rounds := 100 // make stress: 1000
	if text := os.Getenv("SEMA_KILLS"); text != "" {
		n, err := strconv.Atoi(text)
		expect.OK(t, err)
		rounds = n
	}
	url, book := fileURL(t), filepath.Join(t.TempDir(), "book")
	crowd := make([]*exec.Cmd, 3)
	begin := func(i int) {
		cmd := exec.Command("sema", "run", "k", "--", "bash", "-c", jealous, book)
		cmd.Env = append(os.Environ(), "SEMA_URL="+url)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		expect.OK(t, cmd.Start())
		crowd[i] = cmd
	}
	for i := range crowd {
		begin(i)
	}
	var stopped []int
	for range rounds {
		time.Sleep(rand.N(25 * time.Millisecond)) // the moment is the input
		i := rand.N(len(crowd))
		pid := crowd[i].Process.Pid
		if rand.N(2) == 0 {
			for _, child := range children(t, pid) {
				_ = syscall.Kill(child, syscall.SIGSTOP) // guard and sentinel
				stopped = append(stopped, child)
			}
		}
		_ = crowd[i].Process.Kill()
		_ = crowd[i].Wait()
		begin(i)
	}
	for _, cmd := range crowd {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	// The kernel has continued them, but for one that was stopped before it had
	// asked for that, in the first microseconds of its life.
	for _, pid := range stopped {
		if state(pid) == 'T' {
			_ = syscall.Kill(pid, syscall.SIGCONT)
		}
	}
	look(t, url, "k").until("the end of the last", func(st sema.State) bool { return len(st.Holders) == 0 })
	file, err := os.OpenFile(book, os.O_RDONLY|os.O_CREATE, 0o600)
	expect.OK(t, err)
	defer func() { _ = file.Close() }()
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		t.Errorf("the permit was back before the last process had ended: %v", err)
	}
	var starts, overlaps int
	for _, word := range strings.Fields(read(t, book)) {
		switch word {
		case "start":
			starts++
		case "overlap":
			overlaps++
		}
	}
	if overlaps > 0 {
		t.Errorf("%d overlaps", overlaps)
	}
	t.Logf("%d killed, %d commands started", rounds+len(crowd), starts)
}
