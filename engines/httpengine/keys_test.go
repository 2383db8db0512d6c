//go:build unix

package httpengine_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"testing"
	"testing/synctest"

	"sema"
	"sema/engine"
	"sema/engines/httpengine"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/pipenet"
	"sema/internal/protocol"
	"sema/internal/wire"
)

// Caps of every depth pass the server in both directions.
func TestCapsOfEveryDepth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := serve(t, memory, inMemory, nil)
		ctx, caps := t.Context(), sema.Caps{3, 2, 1}
		s := r.semaphore(9, &sema.Options{Caps: caps})
		take := func(path ...string) *sema.Permit {
			t.Helper()
			p, err := s.TryAcquire(ctx, sema.For(path...))
			expect.OK(t, err)
			return p
		}
		busy := func(path ...string) {
			t.Helper()
			_, err := s.TryAcquire(ctx, sema.For(path...))
			expect.Is(t, err, sema.ErrBusy)
		}
		alice := take("acme", "alice", "gpt")
		busy("acme", "alice", "gpt")
		take("acme", "alice", "llama")
		busy("acme", "alice", "mistral")
		got := make(chan *sema.Permit)
		go func() {
			p, err := s.Acquire(ctx, sema.For("acme", "alice", "mistral"))
			if err != nil {
				t.Error(err)
			}
			got <- p
		}()
		synctest.Wait()
		bob := take("acme", "bob", "gpt") // alice waits for herself alone
		busy("acme", "bob", "llama")
		busy("acme")
		take("beta", "carol")
		expect.OK(t, bob.Release())
		busy("acme", "alice", "mistral")
		expect.OK(t, alice.Release())
		<-got

		st, err := s.State(ctx)
		expect.OK(t, err)
		held := map[engine.Key]int{}
		for _, k := range st.Keys {
			held[k.Key] = k.Held
		}
		if st.Caps != caps || held["acme"] != 2 || held["acme\x01alice"] != 2 || held["acme\x01alice\x01mistral"] != 1 || held["beta\x01carol"] != 1 {
			t.Errorf("%+v, %v", st.Caps, held)
		}
		for _, c := range []struct {
			path []string
			n    int
			key  engine.Key
			most int
		}{
			{[]string{"acme", "alice", "gpt"}, 2, "acme\x01alice\x01gpt", 1}, {[]string{"acme", "bob"}, 3, "acme\x01bob", 2},
			{[]string{"beta"}, 4, "beta", 3}, {nil, 10, "", 9},
		} {
			_, err := s.TryAcquire(ctx, sema.For(c.path...), sema.Weight(c.n))
			heavy, ok := errors.AsType[*sema.WeightError](err)
			if !ok || heavy.Key != c.key || heavy.Limit != c.most {
				t.Errorf("%q: %v", c.path, err)
			}
		}

		o, err := sema.Operate(r.client(t), t.Name())
		expect.OK(t, err)
		defer func() { _ = o.Close() }()
		expect.OK(t, o.Set(ctx, sema.Rule{Caps: sema.Caps{0, sema.MaxLimit, 5}}))
		expect.OK(t, o.Set(ctx, sema.Rule{Limit: 2, Share: 300}, "acme", "a/b"))
		if st, err = o.State(ctx); err != nil || st.Caps != (sema.Caps{3, 0, 5}) {
			t.Errorf("%+v, %v", st.Caps, err)
		}
		expect.OK(t, o.Unset(ctx, "acme", "a/b"))
		differs := r.semaphore(9, &sema.Options{Caps: caps, OnConflict: sema.LimitStrict})
		_, err = differs.TryAcquire(ctx)
		if other, ok := errors.AsType[*sema.LimitError](err); !ok || other.StoredCaps != (sema.Caps{3, 0, 5}) || other.WantedCaps != caps {
			t.Errorf("%v", err)
		}
	})
}

// A reply that names a key or a pool which its request does not have fails like any malformed one.
func TestAReplyOfAKeyOrAPoolThatNobodyNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		depth, pool := 0, 0
		l := pipenet.Listen()
		h := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/v1/engine/step" {
				http.NotFound(w, r)
				return
			}
			w.Header().Set("Content-Type", wire.ContentType)
			_, _ = w.Write(wire.AppendReply(nil, &wire.Reply{As: "m1", Reply: protocol.Reply{
				Limit: 3, Answers: []protocol.Answer{{Status: protocol.TooHeavy, Bound: 1, Depth: depth, Pool: pool}},
			}}, ""))
		})}
		done := make(chan struct{})
		go func() { defer close(done); _ = h.Serve(l) }()
		e, err := httpengine.New("http://"+l.Addr().String(), nil)
		expect.OK(t, err)
		e.DialBy(func(ctx context.Context, network, addr string) (net.Conn, error) {
			return pipenet.Dial(ctx, network, addr)
		})
		s, err := e.Open("x", engine.Self(""), func(protocol.Notification) {})
		expect.OK(t, err)
		for number, c := range []struct {
			depth, pool int
			fits        bool
		}{{0, 0, true}, {2, 0, true}, {3, 0, false}, {-1, 0, false}, {1 << 30, 0, false}, {0, 2, true}, {0, 3, false}, {0, -1, false}, {0, 1 << 30, false}} {
			depth, pool = c.depth, c.pool
			_, err := s.Step(t.Context(), protocol.Call{Number: uint64(number + 1), Requests: []protocol.Request{{
				Kind: protocol.Ask, ID: engine.ID{Client: s.Client(), Number: 1, Weight: 2}, Target: protocol.Target{Key: "acme\x01alice", Takes: "gpu=1,licence=2"}, Limit: 3,
			}}})
			if c.fits != (err == nil) || err != nil && !errors.Is(err, wire.ErrMalformed) {
				t.Errorf("a depth of %d, a pool of %d: %v", c.depth, c.pool, err)
			}
		}
		_ = e.Close()
		_ = h.Close()
		<-done
	})
}

// Pools pass the server in both directions.
func TestPoolsPassTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := serve(t, memory, inMemory, nil)
		ctx := t.Context()
		s := r.semaphore(9, &sema.Options{Pools: "gpu=2,licence=1"})
		_, err := s.TryAcquire(ctx, sema.For("acme", "alice"), sema.Take("gpu", 2))
		expect.OK(t, err)
		_, err = s.TryAcquire(ctx, sema.Take("gpu", 1))
		expect.Is(t, err, sema.ErrBusy)
		_, err = s.TryAcquire(ctx, sema.Take("gpu", 1), sema.Take("licence", 2))
		if heavy, ok := errors.AsType[*sema.WeightError](err); !ok || heavy.Pool != "licence" || heavy.Limit != 1 || heavy.Weight != 2 {
			t.Errorf("%v", err)
		}
		_, err = s.TryAcquire(ctx, sema.Take("gpus", 1))
		expect.Is(t, err, sema.ErrNoPool)
		_, err = r.semaphore(9, &sema.Options{Pools: "gpu=3", OnConflict: sema.LimitStrict}).TryAcquire(ctx)
		if other, ok := errors.AsType[*sema.LimitError](err); !ok || other.StoredPools != "gpu=2,licence=1" || other.WantedPools != "gpu=3" {
			t.Errorf("%v", err)
		}
		st, err := s.State(ctx)
		expect.OK(t, err)
		if len(st.Pools) != 2 || st.Pools[0] != (engine.PoolState{Pool: "gpu", Limit: 2, Used: 2}) || st.Holders[0].Takes != "gpu=2" || st.Holders[0].Key != "acme\x01alice" {
			t.Errorf("%+v", st)
		}
	})
}
