package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sema/engines/memengine"
	"sema/internal/fixture/child"
	"sema/internal/fixture/expect"
	"sema/server"
)

// serverRole is a process with a server and an engine in memory. It prints its address.
const serverRole = "server"

// serverJob configures such a server.
type serverJob struct {
	Files  uint64 // how many files it may open; 0: as many as this process
	Tokens bool
}

func init() {
	child.Role(serverRole, func(job serverJob) error {
		if job.Files > 0 {
			if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: job.Files, Max: job.Files}); err != nil {
				return err
			}
		}
		o := &server.Options{}
		if job.Tokens {
			var err error
			if o.Tokens, err = server.ReadTokens(strings.NewReader("boss admin * secret-of-the-boss\n")); err != nil {
				return err
			}
		}
		ctx, stop := context.WithCancel(context.Background())
		go func() {
			_, _ = child.Order() // returns when the test ends
			stop()
		}()
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		fmt.Println("at", l.Addr())
		e := memengine.New()
		s, err := server.New(e, o)
		if err != nil {
			return err
		}
		return errors.Join(s.Serve(ctx, l), e.Close())
	})
}

// process is a server in a separate process.
type process struct {
	*child.Tested
	addr string
}

func startProcess(tb testing.TB, job serverJob) *process {
	p := &process{Tested: child.Run(tb, serverRole, job)}
	p.Says("at", &p.addr)
	tb.Cleanup(p.Ends)
	return p
}

// poll is a connection that waits for a permit.
type poll struct {
	conn net.Conn
	in   *bufio.Reader
}

func (p *process) dial(tb testing.TB) *poll {
	c, err := net.Dial("tcp", p.addr)
	expect.OK(tb, err)
	tb.Cleanup(func() { _ = c.Close() })
	return &poll{c, bufio.NewReaderSize(c, 512)}
}

func (c *poll) send(method, path, body string) error {
	_, err := fmt.Fprintf(c.conn, "%s /v1/semaphores/x%s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", method, path, len(body), body)
	return err
}

func (c *poll) receive(v any) (int, error) {
	r, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return 0, err
	}
	text, err := io.ReadAll(r.Body)
	if err == nil && v != nil {
		err = json.Unmarshal(text, v)
	}
	return r.StatusCode, err
}

// longPolls opens n connections that wait for one permit, each with its own label or without
// one. It measures the server for a while, and then serves the connections in order.
func longPolls(tb testing.TB, n int, labels bool, while time.Duration) (perPoll float64, waiting, serving, served time.Duration) {
	p := startProcess(tb, serverJob{})
	gate, look := p.dial(tb), p.dial(tb)
	expect.OK(tb, gate.send("PUT", "/permits/gate", `{"limit":1,"lease_seconds":600}`))
	if status, err := gate.receive(nil); err != nil || status != 200 {
		tb.Fatal(status, err)
	}
	type state struct {
		Waiters int `json:"waiting"`
		List    []struct {
			Permit string `json:"permit"`
		} `json:"waiters"`
	}
	show := func() (s state) {
		expect.OK(tb, look.send("GET", "?max=100000", ""))
		if status, err := look.receive(&s); err != nil || status != 200 {
			tb.Fatal(status, err)
		}
		return s
	}
	before := p.Uses()
	var all sync.WaitGroup
	var mu sync.Mutex
	tokens := map[string]int64{}
	for i := range n {
		c, label := p.dial(tb), ""
		if labels {
			label = "waiter " + strconv.Itoa(i)
		}
		expect.OK(tb, c.send("PUT", "/permits/w"+strconv.Itoa(i), fmt.Sprintf(`{"limit":1,"lease_seconds":60,"wait_seconds":600,"label":%q}`, label)))
		all.Go(func() {
			got := struct {
				Permit string `json:"permit"`
				Token  int64  `json:"token"`
			}{}
			if status, err := c.receive(&got); err != nil || status != 200 {
				tb.Errorf("%d, %v", status, err)
				return
			}
			mu.Lock()
			tokens[got.Permit] = got.Token
			mu.Unlock()
			if err := c.send("DELETE", "/permits/w"+strconv.Itoa(i), ""); err != nil {
				tb.Error(err)
			}
			if status, err := c.receive(nil); err != nil || status != 204 {
				tb.Errorf("%d, %v", status, err)
			}
		})
	}
	expect.Until(tb, "all waiters", func() bool { return show().Waiters == n })
	order := show().List
	after := p.Uses()
	time.Sleep(while)
	idled := p.Uses()
	began := time.Now()
	expect.OK(tb, gate.send("DELETE", "/permits/gate", ""))
	all.Wait()
	served = time.Since(began)
	end := p.Uses()
	last := int64(0)
	for i, w := range order {
		if tokens[w.Permit] <= last {
			tb.Fatalf("waiter %d of %d was served out of order", i, n)
		}
		last = tokens[w.Permit]
	}
	if s := show(); s.Waiters != 0 {
		tb.Errorf("%d are still waiting", s.Waiters)
	}
	return float64(after.Resident-before.Resident) / float64(n), idled.CPU - after.CPU, end.CPU - idled.CPU, served
}

func TestLongPollsAreServedInOrder(t *testing.T) {
	for _, labels := range []bool{false, true} {
		longPolls(t, 300, labels, 0)
	}
}

// BenchmarkLongPolls measures the cost of 5,000 long polls for a server, without labels and
// with a label each. docs/serve.md has the figures.
func BenchmarkLongPolls(b *testing.B) {
	for _, labels := range []bool{false, true} {
		b.Run(fmt.Sprintf("labels=%t", labels), func(b *testing.B) {
			for b.Loop() {
				const while = 15 * time.Second // enough for three asks of each
				perPoll, waiting, serving, served := longPolls(b, 5000, labels, while)
				b.ReportMetric(perPoll/1024, "KiB/poll")
				b.ReportMetric(100*waiting.Seconds()/while.Seconds(), "%cpu-waiting")
				b.ReportMetric(5000/served.Seconds(), "handoffs/s")
				b.ReportMetric(serving.Seconds()*1e6/5000, "cpu-µs/handoff")
			}
		})
	}
}

// Clients without a right, and clients that send only half a request, cannot use up the files of
// a server: it still answers other clients.
func TestHalfRequestsKeepNobodyOut(t *testing.T) {
	for _, tokens := range []bool{false, true} {
		p := startProcess(t, serverJob{Files: 1024, Tokens: tokens})
		for i := range 1100 {
			c := p.dial(t)
			path := []string{"/v1/semaphores/x/permits/a", "/healthz", "/v1//x"}[i%3]
			_, err := fmt.Fprintf(c.conn, "PUT %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{", path)
			expect.OK(t, err)
		}
		for range 20 {
			c := p.dial(t)
			expect.OK(t, c.conn.SetDeadline(time.Now().Add(10*time.Second))) // a later answer would be an outage
			_, err := fmt.Fprint(c.conn, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
			expect.OK(t, err)
			if status, err := c.receive(nil); err != nil || status != 200 {
				t.Fatal(status, err)
			}
		}
	}
}

// A client that vanishes without closing its connection, as after a power failure, loses its
// permit of hold within two leases, long before TCP gives up.
func TestHoldOfAClientThatVanished(t *testing.T) {
	const lease = 3 * time.Second
	p := startProcess(t, serverJob{})
	c, look := p.dial(t), p.dial(t)
	expect.OK(t, c.send("POST", "/hold", fmt.Sprintf(`{"limit":1,"lease_seconds":%v}`, lease.Seconds())))
	r, err := http.ReadResponse(c.in, nil)
	expect.OK(t, err)
	line, err := bufio.NewReader(r.Body).ReadString('\n')
	if err != nil || !strings.Contains(line, `"granted"`) {
		t.Fatal(line, err)
	}
	used := func() int {
		st := struct {
			Used int `json:"used"`
		}{}
		expect.OK(t, look.send("GET", "", ""))
		if status, err := look.receive(&st); err != nil || status != 200 {
			t.Fatal(status, err)
		}
		return st.Used
	}
	if n := used(); n != 1 {
		t.Fatalf("%d held", n)
	}
	vanish(t, c.conn)
	began := time.Now()
	expect.Until(t, "the release of the permit", func() bool { return used() == 0 })
	t.Logf("given back after %.1f s; the lease is %v", time.Since(began).Seconds(), lease)
}

// vanish makes the kernel drop all packets for this end of a connection before TCP sees them. So
// this end does not answer any more.
func vanish(t *testing.T, c net.Conn) {
	raw, err := c.(*net.TCPConn).SyscallConn()
	expect.OK(t, err)
	var failed error
	expect.OK(t, raw.Control(func(fd uintptr) {
		nothing := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K}}
		failed = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &nothing[0]})
	}))
	expect.OK(t, failed)
}
