package semahttp_test

import (
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sema/internal/fixture/expect"
)

// judge counts the requests that run at an upstream at the same time. A request
// that its client gave up before the next one came runs no more, though its
// handler may not have noticed yet: the kernel knows whether the client has
// closed the connection, and has a moment to learn it.
type judge struct {
	limit    int
	patience time.Duration
	given    sync.Map // names of requests that their clients have begun to give up

	mu     sync.Mutex
	active map[*visit]bool
	most   int
	late   int // times that a request came before the kernel knew that the last one was gone
	wrong  []string
}

// visit is a request at the upstream. Its handler leaves before the client can
// see the end of the answer.
type visit struct {
	name string
	conn *net.TCPConn
}

// giveUp is called by a client before it gives up a request.
func (j *judge) giveUp(name string) { j.given.Store(name, true) }

func (j *judge) enter(name string, c *net.TCPConn) *visit {
	v := &visit{name, c}
	var doubtful []*visit
	j.mu.Lock()
	running := 1
	for o := range j.active {
		if _, given := j.given.Load(o.name); given {
			doubtful = append(doubtful, o)
		} else {
			running++
		}
	}
	j.active[v] = true
	j.mu.Unlock()
	for late, end := 0, time.Now().Add(j.patience); ; time.Sleep(time.Millisecond) {
		doubtful = slices.DeleteFunc(doubtful, func(o *visit) bool { return gone(o.conn) })
		if n := running + len(doubtful); n <= j.limit {
			j.mu.Lock()
			j.most = max(j.most, n)
			j.late += late
			j.mu.Unlock()
			return v
		}
		if running > j.limit || time.Now().After(end) {
			j.mu.Lock()
			j.wrong = append(j.wrong, fmt.Sprintf("%d at once, %d of them certain", running+len(doubtful), running))
			j.mu.Unlock()
			return v
		}
		late = 1
	}
}

func (j *judge) leave(v *visit) {
	j.mu.Lock()
	delete(j.active, v)
	j.mu.Unlock()
}

func (j *judge) running() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.active)
}

// gone reports whether the other side has closed the connection.
func gone(c *net.TCPConn) bool {
	const established = 1
	raw, err := c.SyscallConn()
	if err != nil {
		return true
	}
	state := uint8(0)
	err = raw.Control(func(fd uintptr) {
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			state = info.State
		}
	})
	return err != nil || state != established
}

// A judge who sees nothing would be content with everything.
func TestJudgeSeesOneTooMany(t *testing.T) {
	for _, c := range []struct {
		what         string
		given, close bool
		faults       int
	}{
		{"runs", false, false, 1},
		{"was closed too late to be given up", false, true, 1},
		{"was given up, and its connection is open", true, false, 1},
		{"was given up, and its connection is closed", true, true, 0},
	} {
		j := &judge{limit: 1, patience: 50 * time.Millisecond, active: map[*visit]bool{}}
		server, client := pair(t)
		first := j.enter("first", server)
		if c.given {
			j.giveUp("first")
		}
		if c.close {
			expect.OK(t, client.Close())
		}
		second, _ := pair(t)
		j.leave(j.enter("second", second))
		j.leave(first)
		if len(j.wrong) != c.faults || j.running() != 0 {
			t.Errorf("the first %s: %q, want %d faults", c.what, j.wrong, c.faults)
		}
	}
}

// pair is a connection from both sides.
func pair(t *testing.T) (server *net.TCPConn, client net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	expect.OK(t, err)
	defer func() { _ = l.Close() }()
	client, err = net.Dial("tcp", l.Addr().String())
	expect.OK(t, err)
	accepted, err := l.Accept()
	expect.OK(t, err)
	t.Cleanup(func() { _, _ = client.Close(), accepted.Close() })
	return accepted.(*net.TCPConn), client
}
