package cli_test

import (
	"syscall"
	"testing"
	"time"

	"sema/internal/fixture/expect"
)

// voices are two processes, of which each prints the signals it gets.
const voices = `
voice() {
	for s in INT TERM HUP QUIT USR1 USR2; do trap "echo $1 $s" $s; done
	echo $1 ready
	while :; do sleep 5 & wait $!; done
}
voice low &
voice high
`

var all = map[string]syscall.Signal{
	"INT": syscall.SIGINT, "TERM": syscall.SIGTERM, "HUP": syscall.SIGHUP, "QUIT": syscall.SIGQUIT,
	"USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2,
}

// A signal for sema alone reaches the command's first process, as if that had
// been started in sema's place.
func TestSignalForSemaReachesTheCommand(t *testing.T) {
	t.Parallel()
	j := start(t, fileURL(t), "run", "signals", "--", "bash", "-c", voices)
	got := map[string]bool{j.line(): true, j.line(): true}
	if !got["low ready"] || !got["high ready"] {
		t.Fatalf("heard %v", got)
	}
	for range 3 {
		for name, s := range all {
			j.signal(s)
			j.expect("high " + name)
		}
	}
	j.signal(syscall.SIGKILL)
	j.dead()
}

// A signal for the group that comes while the command is being started ends it as well: the
// guard may be there, and the command not yet.
func TestSignalForTheGroupAtTheStart(t *testing.T) {
	t.Parallel()
	url := fileURL(t)
	for range 30 {
		j := start(t, url, "run", "start", "--", "sleep", "100")
		for len(children(t, j.cmd.Process.Pid)) == 0 {
			expect.OK(t, syscall.Kill(j.cmd.Process.Pid, 0)) // it lives
		}
		expect.OK(t, syscall.Kill(-j.cmd.Process.Pid, syscall.SIGTERM))
		j.exits(128 + int(syscall.SIGTERM))
	}
}

// A signal for the whole process group, as a terminal or "kill %1" sends it,
// reaches each process once: sema adds none of its own.
func TestSignalForTheGroupArrivesOnce(t *testing.T) {
	t.Parallel()
	j := start(t, fileURL(t), "run", "signals", "--", "bash", "-c", voices)
	got := map[string]int{j.line(): 1, j.line(): 1}
	if got["low ready"] != 1 || got["high ready"] != 1 {
		t.Fatalf("heard %v", got)
	}
	var sent []string
	for range 3 {
		for name, s := range all {
			sent = append(sent, name)
			expect.OK(t, syscall.Kill(-j.cmd.Process.Pid, s))
			got := map[string]int{j.line(): 1}
			got[j.line()]++
			if got["low "+name] != 1 || got["high "+name] != 1 {
				t.Fatalf("heard %v after %v, want the last once from each", got, sent)
			}
		}
	}
	// Had any been passed on, it would come before this one, which the command
	// alone gets. Sent a moment after the group's, it would count as the same.
	heard := make(chan string)
	go func() { heard <- j.line() }()
	for again := true; again; {
		j.signal(syscall.SIGUSR1)
		select {
		case got := <-heard:
			if again = false; got != "high USR1" {
				t.Errorf("heard %q", got)
			}
		case <-time.After(10 * time.Millisecond):
		}
	}
	j.signal(syscall.SIGKILL)
	j.dead()
}

// Pitfall: signals are ignored while waiting.
func TestSignalWhileWaitingLeavesTheQueue(t *testing.T) {
	onEngines(t, func(t *testing.T, url string) {
		l := look(t, url, "queue")
		holder := start(t, url, "run", "queue", "--", "cat")
		l.counts(1, 0)
		for name, s := range all {
			j := start(t, url, "run", "queue", "--", "echo", "never")
			l.counts(1, 1)
			j.signal(s)
			j.exits(128 + int(s))
			// By its end it has left, not a moment later.
			if st := l.state(); len(st.Waiters) != 0 {
				t.Fatalf("after %s: %+v", name, st.Waiters)
			}
			j.dead()
		}
		_ = holder.stdin.Close()
		holder.exits(0)
		if st := l.state(); len(st.Holders) != 0 {
			t.Fatalf("%+v", st.Holders)
		}
	})
}

// nohup's choice is the command's as well.
func TestIgnoredHangUpStaysIgnored(t *testing.T) {
	t.Parallel()
	j := start(t, fileURL(t), "version") // warm: the binary is in memory
	j.exits(0)
	url := fileURL(t)
	j = start(t, url, "run", "outer", "--", "sh", "-c", `trap "" HUP; exec sema run inner -- sh -c 'echo ready; read x; echo "$x"'`)
	j.expect("ready")
	l := look(t, url, "inner")
	st := l.counts(1, 0)
	expect.OK(t, syscall.Kill(st.Holders[0].Client.PID, syscall.SIGHUP))
	if _, err := j.stdin.WriteString("alive\n"); err != nil {
		t.Fatal(err)
	}
	j.expect("alive")
	j.exits(0)
}
