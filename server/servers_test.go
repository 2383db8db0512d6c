package server_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"sema/engine"
	"sema/engines/memengine"
	"sema/internal/fixture/expect"
	"sema/internal/protocol"
	"sema/server"
)

// engineCable connects one of several servers to a shared engine. When it is cut, no call and no
// notification passes, as if the server had been killed.
type engineCable struct {
	between
	cut atomic.Bool
}

func (c *engineCable) Open(name string, who engine.Client, notify func(protocol.Notification)) (protocol.Session, error) {
	return c.between.Open(name, who, func(n protocol.Notification) {
		if !c.cut.Load() {
			notify(n)
		}
	})
}

func (c *engineCable) Close() error { return nil } // other servers use the engine too

// withServers runs a test with several servers over one engine in memory, in virtual time.
func withServers(t *testing.T, run func(t *testing.T, open func() (*testServer, *engineCable))) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		e := memengine.New()
		t.Cleanup(func() { _ = e.Close() })
		run(t, func() (*testServer, *engineCable) {
			c := &engineCable{}
			c.between = between{e, func(string) error {
				if c.cut.Load() {
					return &engine.Error{Op: "step", NotExecuted: true, Temporary: true, Err: errors.New("cut")}
				}
				return nil
			}}
			return newVirtual(t, c, server.Options{}), c
		})
	})
}

// kill ends a server as kill -9 would.
func kill(c *engineCable) {
	c.cut.Store(true)
	synctest.Wait()
}

// An id that held a permit when the server was killed can wait again at another server: it is
// granted in order and notified.
func TestAnIDOfAnEarlierLifeWaitsLikeAnyOther(t *testing.T) {
	withServers(t, func(t *testing.T, open func() (*testServer, *engineCable)) {
		first, cable := open()
		token := first.want(200, "PUT", "/v1/semaphores/x/permits/nightly", `{"limit":1}`).field("token")
		kill(cable)
		h, _ := open()
		h.want(429, "PUT", "/v1/semaphores/x/permits/other", `{"limit":1}`)
		again := h.want(200, "PUT", "/v1/semaphores/x/permits/nightly", `{"limit":1}`)
		if again.field("token") != token {
			t.Errorf("%s; the token was %v", again.body, token)
		}
		h.want(204, "DELETE", "/v1/semaphores/x/permits/nightly", ``)
		h.want(200, "PUT", "/v1/semaphores/x/permits/nightly", `{"limit":1,"weight":1}`)
		h.want(204, "DELETE", "/v1/semaphores/x/permits/nightly", ``)
		h.want(200, "PUT", "/v1/semaphores/x/permits/gate", `{"limit":1}`)
		served := h.queue(t, "nightly", "w1", "w2", "w3")
		began := time.Now()
		h.want(204, "DELETE", "/v1/semaphores/x/permits/gate", ``)
		if got := served(); fmt.Sprint(got) != "[nightly w1 w2 w3]" {
			t.Errorf("served in the order %v", got)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("it took %v to serve four callers that release at once", took)
		}
	})
}

// queue starts callers that wait for x, one after the other, and release their permits at
// once. The function that it returns waits for their end.
func (h *testServer) queue(t *testing.T, ids ...string) (served func() []string) {
	var mu sync.Mutex
	var order []string
	var all sync.WaitGroup
	n := len(h.state("x").Waiters)
	for i, id := range ids {
		all.Go(func() {
			path := "/v1/semaphores/x/permits/" + id
			a, err := h.try(context.Background(), "PUT", path, `{"limit":1,"wait_seconds":600}`)
			if err != nil || a.status != 200 {
				t.Errorf("%s: %d %s %v", id, a.status, a.body, err)
				return
			}
			mu.Lock()
			order = append(order, id)
			mu.Unlock()
			if a, err := h.try(context.Background(), "DELETE", path, ""); err != nil || a.status != 204 {
				t.Errorf("%s: %d %s %v", id, a.status, a.body, err)
			}
		})
		h.waiting("x", n+i+1)
		time.Sleep(time.Millisecond) // so that the next caller comes later
	}
	return func() []string { all.Wait(); return order }
}

// The order of the queue survives the server's end, by kill -9 or by TERM. The order in which
// callers ask again does not matter.
func TestTheQueueSurvivesTheServer(t *testing.T) {
	t.Run("kill", func(t *testing.T) {
		theQueueSurvives(t, func(_ *testServer, c *engineCable) { kill(c) })
	})
	t.Run("close", func(t *testing.T) {
		theQueueSurvives(t, func(h *testServer, _ *engineCable) { h.server.Close() })
	})
}

func theQueueSurvives(t *testing.T, end func(*testServer, *engineCable)) {
	withServers(t, func(t *testing.T, open func() (*testServer, *engineCable)) {
		first, cable := open()
		first.want(200, "PUT", "/v1/semaphores/x/permits/gate", `{"limit":1,"lease_seconds":600}`)
		ctx, cancel := context.WithCancel(context.Background())
		var all sync.WaitGroup
		ids := []string{"a", "b", "c", "d", "e", "f"}
		for i, id := range ids {
			all.Go(func() { _, _ = first.try(ctx, "PUT", "/v1/semaphores/x/permits/"+id, `{"limit":1,"wait_seconds":600}`) })
			first.waiting("x", i+1)
			time.Sleep(time.Millisecond)
		}
		end(first, cable)
		cancel()
		all.Wait()
		h, _ := open()
		h.waiting("x", len(ids))
		var mu sync.Mutex
		tokens := map[string]float64{}
		for _, id := range []string{"e", "b", "f", "a", "d", "c"} {
			all.Go(func() {
				path := "/v1/semaphores/x/permits/" + id
				a, err := h.try(context.Background(), "PUT", path, `{"limit":1,"wait_seconds":600}`)
				if err != nil || a.status != 200 {
					t.Errorf("%s: %d %s %v", id, a.status, a.body, err)
					return
				}
				mu.Lock()
				tokens[id] = a.field("token").(float64)
				mu.Unlock()
				_, _ = h.try(context.Background(), "DELETE", path, "")
			})
			synctest.Wait()
		}
		h.want(204, "DELETE", "/v1/semaphores/x/permits/gate", ``)
		all.Wait()
		for i := 1; i < len(ids); i++ {
			if tokens[ids[i-1]] >= tokens[ids[i]] {
				t.Errorf("%s came earlier, but was served after %s: %v", ids[i-1], ids[i], tokens)
			}
		}
	})
}

// A server that closes removes the tickets of callers that cannot ask another server: the
// server has chosen their ids, or would have renewed their permits.
func TestACloseLeavesNoPlaceToThoseWhoCannotComeBack(t *testing.T) {
	withServers(t, func(t *testing.T, open func() (*testServer, *engineCable)) {
		h, _ := open()
		h.want(200, "PUT", "/v1/semaphores/x/permits/gate", `{"limit":1,"lease_seconds":600}`)
		var all sync.WaitGroup
		for i, path := range []string{"/permits", "/hold"} {
			all.Go(func() { _, _ = h.try(t.Context(), "POST", "/v1/semaphores/x"+path, `{"limit":1,"wait_seconds":600}`) })
			h.waiting("x", i+1)
		}
		h.server.Close()
		all.Wait()
		h.waiting("x", 0)
	})
}

// A renewal without a body keeps the length of the last lease, also at another server.
func TestARenewalAtAnotherServerKeepsTheLease(t *testing.T) {
	withServers(t, func(t *testing.T, open func() (*testServer, *engineCable)) {
		u, _ := open()
		v, cable := open()
		u.want(200, "PUT", "/v1/semaphores/x/permits/a", `{"limit":1,"lease_seconds":600}`)
		for range 5 {
			time.Sleep(5 * time.Minute)
			if a := v.want(200, "POST", "/v1/semaphores/x/permits/a/renew", ``); a.field("lease_seconds").(float64) < 599 {
				t.Fatalf("%s", a.body)
			}
		}
		if a := v.want(200, "POST", "/v1/semaphores/x/permits/a/renew", `{"lease_seconds":60}`); a.field("lease_seconds").(float64) > 60 {
			t.Fatalf("%s", a.body)
		}
		kill(cable)
		w, _ := open()
		if a := w.want(200, "POST", "/v1/semaphores/x/permits/a/renew", ``); a.field("lease_seconds").(float64) < 599 {
			t.Fatalf("%s", a.body)
		}
		w.want(204, "DELETE", "/v1/semaphores/x/permits/a", ``)
		u.want(410, "POST", "/v1/semaphores/x/permits/a/renew", ``)
		if st := w.state("x"); st.Used != 0 {
			t.Errorf("%+v", st)
		}
	})
}

// A caller that asks two servers at once gets one permit. It keeps the permit if the connection to
// the first server breaks.
func TestOneIDAtTwoServersIsOnePermit(t *testing.T) {
	withServers(t, func(t *testing.T, open func() (*testServer, *engineCable)) {
		u, _ := open()
		v, _ := open()
		u.want(200, "PUT", "/v1/semaphores/x/permits/gate", `{"limit":1,"lease_seconds":600}`)
		ctx, cancel := context.WithCancel(context.Background())
		broken := u.later(ctx, "/v1/semaphores/x/permits/a", `{"limit":1,"wait_seconds":600}`)
		u.waiting("x", 1)
		answered := v.later(t.Context(), "/v1/semaphores/x/permits/a", `{"limit":1,"wait_seconds":600}`)
		synctest.Wait()
		u.waiting("x", 1) // the same ticket
		cancel()
		<-broken
		synctest.Wait()
		u.want(204, "DELETE", "/v1/semaphores/x/permits/gate", ``)
		if a := <-answered; a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		time.Sleep(20 * time.Second)
		v.want(200, "POST", "/v1/semaphores/x/permits/a/renew", ``)
		u.want(204, "DELETE", "/v1/semaphores/x/permits/a", ``)
		v.want(200, "PUT", "/v1/semaphores/x/permits/b", `{"limit":1}`)
		v.want(410, "DELETE", "/v1/semaphores/x/permits/a", ``)
		if st := v.state("x"); st.Used != 1 {
			t.Errorf("%+v", st)
		}
	})
}

// The engine keeps the key of an id's first ask, and refuses another one at another server.
func TestOneIDWithAnotherKeyAtAnotherServer(t *testing.T) {
	withServers(t, func(t *testing.T, open func() (*testServer, *engineCable)) {
		u, _ := open()
		v, _ := open()
		const x = "/v1/semaphores/x"
		u.want(200, "PUT", x+"/permits/gate", `{"limit":3,"weight":3,"lease_seconds":600}`)
		answered := u.later(t.Context(), x+"/permits/a", `{"limit":3,"weight":2,"key":["acme","alice"],"wait_seconds":600}`)
		u.waiting("x", 1)
		u.want(204, "POST", x+"/pause", ``) // the engine drops no ticket meanwhile
		u.want(204, "PUT", x+"/keys/acme/alice", `{"cap":1}`)
		if a := v.want(409, "PUT", x+"/permits/a", `{"limit":3,"weight":2,"key":"acme","wait_seconds":600}`); a.field("type") != "urn:sema:another" {
			t.Errorf("%s", a.body)
		}
		if a := <-answered; a.status != 409 || !strings.Contains(string(a.body), `"at":{"key":["acme","alice"],"cap":1}`) {
			t.Errorf("%d %s", a.status, a.body)
		}
	})
}

// Two servers share pools. Of a permit that another server granted, a server knows the key and what it takes.
func TestPoolsAtTwoServers(t *testing.T) {
	withServers(t, func(t *testing.T, open func() (*testServer, *engineCable)) {
		u, _ := open()
		v, _ := open()
		const x, gpu = "/v1/semaphores/x", `{"limit":9,"pools":{"db":3,"gpu":1},"take":{"gpu":1},"key":"acme","wait_seconds":600}`
		u.want(200, "PUT", x+"/permits/a", gpu)
		v.want(429, "PUT", x+"/permits/b", strings.Replace(gpu, "600", "0", 1))
		expect.Has(t, v.want(200, "POST", x+"/permits/a/renew", ``).body, `"key":"acme","takes":{"gpu":1}`)
		v.want(200, "PUT", x+"/permits/a", gpu) // the same permit
		w, _ := open()                          // it has not heard of the permit
		for _, other := range []string{strings.Replace(gpu, `"take":{"gpu":1}`, `"take":{"db":1,"gpu":1}`, 1), strings.Replace(gpu, "acme", "zeta", 1)} {
			if a := w.want(409, "PUT", x+"/permits/a", other); a.field("type") != "urn:sema:another" {
				t.Errorf("%s", a.body)
			}
		}
		answered := v.later(t.Context(), x+"/permits/b", gpu)
		v.waiting("x", 1)
		u.want(200, "PUT", x+"/permits/c", `{"limit":9,"take":{"db":3}}`)
		v.want(204, "DELETE", x+"/permits/a", ``)
		if a := <-answered; a.status != 200 || !strings.Contains(string(a.body), `"takes":{"gpu":1}`) {
			t.Errorf("%d %s", a.status, a.body)
		}
		answered = u.later(t.Context(), x+"/permits/d", strings.Replace(gpu, `"take":{"gpu":1}`, `"take":{"db":1,"gpu":1}`, 1))
		u.waiting("x", 1)
		u.want(204, "POST", x+"/pause", ``) // the engine drops no ticket meanwhile
		v.want(204, "PUT", x+"/limit", `{"limit":9,"pools":{"gpu":0}}`)
		if a := v.want(409, "PUT", x+"/permits/d", `{"limit":9,"take":{"db":1},"key":"acme","wait_seconds":600}`); a.field("type") != "urn:sema:another" {
			t.Errorf("%s", a.body)
		}
		if a := <-answered; a.status != 404 || !strings.Contains(string(a.body), `"at":{"pool":"gpu"}`) {
			t.Errorf("%d %s", a.status, a.body)
		}
	})
}
