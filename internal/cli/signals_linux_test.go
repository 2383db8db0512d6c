package cli_test

import (
	"syscall"
	"testing"
)

// chorus is a command of two processes that each print the signals they get.
const chorus = `
voice() {
	for s in INT TERM HUP QUIT USR1 USR2 WINCH; do trap "echo $1 $s" $s; done
	echo $1 ready
	while :; do sleep 5 & wait $!; done
}
voice low &
voice high
`

var all = map[string]syscall.Signal{
	"INT": syscall.SIGINT, "TERM": syscall.SIGTERM, "HUP": syscall.SIGHUP, "QUIT": syscall.SIGQUIT,
	"USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2, "WINCH": syscall.SIGWINCH,
}

func TestSignalsReachTheWholeGroup(t *testing.T) {
	j := start(t, fileURL(t), "run", "signals", "--", "bash", "-c", chorus)
	both := func(word string) {
		t.Helper()
		got := map[string]bool{j.line(): true, j.line(): true}
		if !got["low "+word] || !got["high "+word] {
			t.Fatalf("heard %v, want %s from both", got, word)
		}
	}
	both("ready")
	for name, s := range all {
		j.signal(s)
		both(name)
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
			if s == syscall.SIGWINCH {
				j.signal(syscall.SIGTERM)
				s = syscall.SIGTERM
			}
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
	j := start(t, fileURL(t), "version") // warm: the binary is in memory
	j.exits(0)
	url := fileURL(t)
	j = start(t, url, "run", "outer", "--", "sh", "-c", `trap "" HUP; exec sema run inner -- sh -c 'echo ready; read x; echo "$x"'`)
	j.expect("ready")
	l := look(t, url, "inner")
	st := l.counts(1, 0)
	if err := syscall.Kill(st.Holders[0].Client.PID, syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if _, err := j.stdin.WriteString("alive\n"); err != nil {
		t.Fatal(err)
	}
	j.expect("alive")
	j.exits(0)
}
