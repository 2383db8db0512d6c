package server_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"sema/engine"
	"sema/engine/memengine"
	"sema/internal/fixture/pipenet"
	"sema/server"
)

// cable is what a server has of an engine that others share. Cut, it is as if the
// server had been killed: nothing of it reaches the engine any more, and nothing
// reaches it.
type cable struct {
	engine.Engine
	cut atomic.Bool
}

func (c *cable) Open(name string, who engine.Client, notify func(engine.Notification)) (engine.Session, error) {
	s, err := c.Engine.Open(name, who, func(n engine.Notification) {
		if !c.cut.Load() {
			notify(n)
		}
	})
	return &cableSession{s, c}, err
}

func (c *cable) Close() error { return nil } // the engine is the others' as well

type cableSession struct {
	engine.Session
	cable *cable
}

var errCut = &engine.Error{Op: "step", NotExecuted: true, Temporary: true, Err: errors.New("cut")}

func (s *cableSession) Step(ctx context.Context, c engine.Call) (engine.Reply, error) {
	if s.cable.cut.Load() {
		return engine.Reply{}, errCut
	}
	return s.Session.Step(ctx, c)
}

func (s *cableSession) State(ctx context.Context) (engine.State, error) {
	if s.cable.cut.Load() {
		return engine.State{}, errCut
	}
	return s.Session.State(ctx)
}

// street has servers over one engine in memory, in virtual time.
func street(t *testing.T, visit func(t *testing.T, open func() (*house, *cable))) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		e := memengine.New()
		t.Cleanup(func() { _ = e.Close() })
		visit(t, func() (*house, *cable) {
			c := &cable{Engine: e}
			h := newHouse(t, c, server.Options{}, func(s http.Handler) *httptest.Server { return pipenet.Serve(s, nil) })
			h.settle = synctest.Wait
			return h, c
		})
	})
}

// kill ends a server as kill -9 would.
func kill(c *cable) {
	c.cut.Store(true)
	synctest.Wait()
}

// An id that was held when the server was killed waits in its turn afterwards, and
// is told of it.
func TestAnIDOfAnEarlierLifeWaitsLikeAnyOther(t *testing.T) {
	street(t, func(t *testing.T, open func() (*house, *cable)) {
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
			t.Errorf("it took %v to serve four that hold for a moment", took)
		}
	})
}

// queue has callers wait for x, one after the other. They give back what they get
// at once. The function it returns waits for their end.
func (h *house) queue(t *testing.T, ids ...string) (served func() []string) {
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
		time.Sleep(time.Millisecond) // the next one comes later
	}
	return func() []string { all.Wait(); return order }
}

// The order of those that wait survives the server's end, by kill -9 or by TERM, whatever
// the order in which they ask again.
func TestTheQueueSurvivesTheServer(t *testing.T) {
	t.Run("kill", func(t *testing.T) {
		theQueueSurvives(t, func(_ *house, c *cable) { kill(c) })
	})
	t.Run("close", func(t *testing.T) {
		theQueueSurvives(t, func(h *house, _ *cable) { h.server.Close() })
	})
}

func theQueueSurvives(t *testing.T, end func(*house, *cable)) {
	street(t, func(t *testing.T, open func() (*house, *cable)) {
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
				t.Errorf("%s, which came earlier, was served after %s: %v", ids[i-1], ids[i], tokens)
			}
		}
	})
}

// A server that closes takes those out of the queue who cannot ask another one: whose
// permit it named itself, or would have renewed.
func TestACloseLeavesNoPlaceToThoseWhoCannotComeBack(t *testing.T) {
	street(t, func(t *testing.T, open func() (*house, *cable)) {
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

// A renewal without a body keeps the lease that the caller asked for, at any server.
func TestARenewalAtAnotherServerKeepsTheLease(t *testing.T) {
	street(t, func(t *testing.T, open func() (*house, *cable)) {
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

// A caller that asks two servers at once has one permit, whichever answers it, and
// keeps it though the connection to the first breaks.
func TestOneIDAtTwoServersIsOnePermit(t *testing.T) {
	street(t, func(t *testing.T, open func() (*house, *cable)) {
		u, _ := open()
		v, _ := open()
		u.want(200, "PUT", "/v1/semaphores/x/permits/gate", `{"limit":1,"lease_seconds":600}`)
		ctx, cancel := context.WithCancel(context.Background())
		broken := make(chan struct{})
		go func() {
			defer close(broken)
			_, _ = u.try(ctx, "PUT", "/v1/semaphores/x/permits/a", `{"limit":1,"wait_seconds":600}`)
		}()
		u.waiting("x", 1)
		answered := make(chan answer, 1)
		go func() {
			a, _ := v.try(context.Background(), "PUT", "/v1/semaphores/x/permits/a", `{"limit":1,"wait_seconds":600}`)
			answered <- a
		}()
		synctest.Wait()
		u.waiting("x", 1) // the same
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
