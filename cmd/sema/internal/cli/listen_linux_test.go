package cli

import (
	"net"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sema/internal/fixture/expect"
)

// connected returns both ends of a new connection to a listener.
func connected(t *testing.T, l net.Listener) (client, server net.Conn) {
	t.Helper()
	client = dialed(t, l)
	server, err := l.Accept()
	expect.OK(t, err)
	t.Cleanup(func() { _ = server.Close() })
	return client, server
}

func dialed(t *testing.T, l net.Listener) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", l.Addr().String())
	expect.OK(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// The end of the connection of a client that vanished, as after a power failure, is noticed long before TCP gives up.
func TestAClientThatVanished(t *testing.T) {
	t.Parallel()
	l, err := listen("127.0.0.1:0", mostConns(), time.Second)
	expect.OK(t, err)
	defer func() { _ = l.Close() }()
	client, server := connected(t, l)
	raw, err := client.(*net.TCPConn).SyscallConn()
	expect.OK(t, err)
	var failed error
	expect.OK(t, raw.Control(func(fd uintptr) { // the kernel drops all packets for this end before TCP sees them
		nothing := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K}}
		failed = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &nothing[0]})
	}))
	expect.OK(t, failed)
	_, err = server.Write([]byte("held"))
	expect.OK(t, err)
	expect.OK(t, server.SetReadDeadline(time.Now().Add(time.Minute))) // TCP alone would need longer
	_, err = server.Read(make([]byte, 1))
	expect.Is(t, err, unix.ETIMEDOUT)
}

// A connection above the limit waits until another one is closed.
func TestLimitOfConnections(t *testing.T) {
	t.Parallel()
	l, err := listen("127.0.0.1:0", 1, vanished)
	expect.OK(t, err)
	defer func() { _ = l.Close() }()
	client, server := connected(t, l)
	second := dialed(t, l)
	var closed atomic.Bool
	began, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		close(began)
		c, err := l.Accept()
		if err != nil || !closed.Load() || c.RemoteAddr().String() != second.LocalAddr().String() {
			t.Errorf("accepted %v, %v, while another one is open: %t", c, err, !closed.Load())
		}
		if c != nil {
			_ = c.Close()
		}
	}()
	<-began
	for range 100 { // the first one works meanwhile
		_, err = client.Write([]byte("x"))
		expect.OK(t, err)
		_, err = server.Read(make([]byte, 1))
		expect.OK(t, err)
	}
	closed.Store(true)
	expect.OK(t, server.Close())
	<-ended
}
