package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"sema/engine/memengine"
	"sema/lab/expect"
	"sema/server"
)

// childEnv makes this test binary a server over memory. It prints its address.
const childEnv = "SEMA_SERVER_TEST_CHILD"

func child() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err == nil {
		fmt.Println(l.Addr())
		e := memengine.New()
		err = server.New(e, nil).Serve(ctx, l)
		_ = e.Close()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// process is a server in a process of its own.
type process struct {
	cmd  *exec.Cmd
	addr string
}

func startProcess(tb testing.TB) *process {
	p := &process{cmd: exec.Command(os.Args[0], "-test.run=^$")}
	p.cmd.Env = append(os.Environ(), childEnv+"=1")
	p.cmd.Stderr = os.Stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := p.cmd.StdoutPipe()
	expect.OK(tb, err)
	expect.OK(tb, p.cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	expect.OK(tb, err)
	p.addr = strings.TrimSpace(line)
	tb.Cleanup(func() {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		if err := p.cmd.Wait(); err != nil {
			tb.Errorf("the server: %v", err)
		}
	})
	return p
}

// memory is what the process has resident, in bytes, and cpu what it has used.
func (p *process) memory(tb testing.TB) (resident float64, cpu time.Duration) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	expect.OK(tb, err)
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	number := func(i int) float64 { v, _ := strconv.ParseFloat(fields[i], 64); return v }
	return number(21) * float64(os.Getpagesize()), time.Duration((number(11) + number(12)) * float64(10*time.Millisecond))
}

// poll is a connection of its own that waits for a permit.
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

// longPolls has n connections wait for one permit, looks at the server while
// they do nothing for so long, and lets them have it one after the other, in their
// order.
func longPolls(tb testing.TB, n int, idle time.Duration) (perPoll float64, waiting, serving, served time.Duration) {
	p := startProcess(tb)
	gate, look := p.dial(tb), p.dial(tb)
	expect.OK(tb, gate.send("PUT", "/permits/gate", `{"limit":1,"lease_seconds":600}`))
	if status, err := gate.receive(nil); err != nil || status != 200 {
		tb.Fatal(status, err)
	}
	type state struct {
		Waiters int `json:"waiters"`
		List    []struct {
			Permit string `json:"permit"`
		} `json:"waiter_list"`
	}
	show := func() (s state) {
		expect.OK(tb, look.send("GET", "?max=100000", ""))
		if status, err := look.receive(&s); err != nil || status != 200 {
			tb.Fatal(status, err)
		}
		return s
	}
	before, _ := p.memory(tb)
	var all sync.WaitGroup
	var mu sync.Mutex
	tokens := map[string]int64{}
	for i := range n {
		c := p.dial(tb)
		expect.OK(tb, c.send("PUT", "/permits/w"+strconv.Itoa(i), `{"limit":1,"lease_seconds":60,"wait_seconds":600}`))
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
	for show().Waiters < n {
		time.Sleep(20 * time.Millisecond) // the server shows no event for it
	}
	order := show().List
	after, used := p.memory(tb)
	time.Sleep(idle) // what is measured: the cost of waiting
	_, idled := p.memory(tb)
	began := time.Now()
	expect.OK(tb, gate.send("DELETE", "/permits/gate", ""))
	all.Wait()
	served = time.Since(began)
	_, end := p.memory(tb)
	if len(order) != n {
		tb.Fatalf("%d wait; want %d", len(order), n)
	}
	last := int64(0)
	for i, w := range order {
		if tokens[w.Permit] <= last {
			tb.Fatalf("waiter %d of %d was served out of order", i, n)
		}
		last = tokens[w.Permit]
	}
	if s := show(); s.Waiters != 0 {
		tb.Errorf("%d wait still", s.Waiters)
	}
	return (after - before) / float64(n), idled - used, end - idled, served
}

func TestLongPollsAreServedInOrder(t *testing.T) {
	if testing.Short() {
		t.Skip("it needs a process")
	}
	t.Parallel()
	longPolls(t, 300, 0)
}

// What 5,000 long polls cost a server: docs/serve.md has the figures.
func BenchmarkLongPolls(b *testing.B) {
	const idle = 5 * time.Second
	for b.Loop() {
		perPoll, waiting, serving, served := longPolls(b, 5000, idle)
		b.ReportMetric(perPoll/1024, "KiB/poll")
		b.ReportMetric(waiting.Seconds()/idle.Seconds()*100, "%cpu-waiting")
		b.ReportMetric(5000/served.Seconds(), "handoffs/s")
		b.ReportMetric(serving.Seconds()*1e6/5000, "cpu-µs/handoff")
	}
}
