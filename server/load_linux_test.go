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
	"sync"
	"testing"
	"time"

	"sema/engines/memengine"
	"sema/internal/fixture/child"
	"sema/internal/fixture/expect"
	"sema/server"
)

// serverRole is a process with a server and an engine in memory. It prints its address.
const serverRole = "server"

func init() {
	child.Role(serverRole, func(struct{}) error {
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
		s, err := server.New(e, nil)
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

func startProcess(tb testing.TB) *process {
	p := &process{Tested: child.Run(tb, serverRole, struct{}{})}
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
	p := startProcess(tb)
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
