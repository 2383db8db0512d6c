package cli_test

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sema"
	"sema/internal/fixture/expect"
)

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
