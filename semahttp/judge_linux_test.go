package semahttp_test

import (
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// judge counts the requests that run at an upstream at the same time. A request
// that its client has given up runs no more, though its handler may not have
// noticed yet: the kernel knows whether the client has closed the connection.
type judge struct {
	limit    int
	patience time.Duration

	mu     sync.Mutex
	active map[*visit]bool
	most   int
	wrong  []string
}

// visit is a request at the upstream. Its handler leaves before the client can
// see the end of the answer.
type visit struct {
	conn *net.TCPConn

	mu        sync.Mutex
	left      bool
	abandoned bool // its client had gone when it left
}

func (j *judge) enter(c *net.TCPConn) *visit {
	v := &visit{conn: c}
	j.mu.Lock()
	others := make([]*visit, 0, len(j.active))
	for o := range j.active {
		others = append(others, o)
	}
	j.active[v] = true
	j.mu.Unlock()
	for end := time.Now().Add(j.patience); ; time.Sleep(time.Millisecond) {
		certain, possible := count(others)
		if possible < j.limit {
			j.mu.Lock()
			j.most = max(j.most, possible+1)
			j.mu.Unlock()
			return v
		}
		if certain >= j.limit || time.Now().After(end) {
			j.mu.Lock()
			j.wrong = append(j.wrong, fmt.Sprintf("%d at once, %d of them certain", possible+1, certain+1))
			j.mu.Unlock()
			return v
		}
	}
}

// count tells how many of the visits ran when they were listed: those that ended
// by themselves since then certainly did, those that go on possibly.
func count(all []*visit) (certain, possible int) {
	for _, v := range all {
		v.mu.Lock()
		switch {
		case v.left && !v.abandoned:
			certain++
			possible++
		case !v.left && !gone(v.conn):
			possible++
		}
		v.mu.Unlock()
	}
	return certain, possible
}

func (j *judge) leave(v *visit) {
	v.mu.Lock()
	if !v.left {
		v.left, v.abandoned = true, gone(v.conn)
	}
	v.mu.Unlock()
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
	for _, ends := range []string{"goes on", "leaves"} {
		j := &judge{limit: 1, patience: 50 * time.Millisecond, active: map[*visit]bool{}}
		a, _ := pair(t)
		first := j.enter(a)
		if ends == "leaves" {
			j.patience = patience
			go func() { time.Sleep(5 * time.Millisecond); j.leave(first) }()
		}
		b, _ := pair(t)
		j.leave(j.enter(b))
		if len(j.wrong) != 1 {
			t.Errorf("the first one %s: %q, want one fault", ends, j.wrong)
		}
	}
	j := &judge{limit: 1, patience: patience, active: map[*visit]bool{}}
	a, far := pair(t)
	j.enter(a)
	must(t, far.Close())
	b, _ := pair(t)
	j.enter(b)
	if len(j.wrong) != 0 {
		t.Errorf("the client of the first had gone: %q, want no fault", j.wrong)
	}
}

// pair is a connection from both sides.
func pair(t *testing.T) (server *net.TCPConn, client net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer func() { _ = l.Close() }()
	client, err = net.Dial("tcp", l.Addr().String())
	must(t, err)
	accepted, err := l.Accept()
	must(t, err)
	t.Cleanup(func() { _, _ = client.Close(), accepted.Close() })
	return accepted.(*net.TCPConn), client
}
