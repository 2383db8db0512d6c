package enginetest

import (
	"context"
	"testing"
	"time"

	"sema"
	"sema/engine/fileengine"
	"sema/engine/memengine"
	"sema/engine/redisengine"
	"sema/internal/redistest"
)

func smoke(t *testing.T, e sema.Engine) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	s, err := sema.New(e, "x", 2, &sema.Options{Label: "me", Slots: true, Lease: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	a, err := s.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	b, err := s.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.TryAcquire(ctx); err == nil {
		t.Fatal("third")
	}
	t.Log(a.ID(), a.Token(), a.Slot(), b.Slot(), s)
	got := make(chan *sema.Permit)
	go func() {
		p, err := s.Acquire(ctx)
		if err != nil {
			t.Error(err)
		}
		got <- p
	}()
	for {
		w, err := s.State(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if len(w.Waiters) == 1 {
			t.Logf("%+v", w)
			break
		}
	}
	if err := a.Release(); err != nil {
		t.Fatal(err)
	}
	c := <-got
	t.Log(c.ID(), c.Token(), c.Slot(), time.Until(c.Deadline()))
	if err := c.Renew(ctx); err != nil {
		t.Fatal(err)
	}
	t.Log(time.Until(c.Deadline()))
	time.Sleep(1500 * time.Millisecond)
	if err := c.Err(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if c.Err() == nil {
		t.Fatal("open")
	}
}

func TestSmokeMem(t *testing.T) { smoke(t, memengine.New()) }
func TestSmokeRedis(t *testing.T) {
	e := redisengine.New(redistest.Start(t).Client())
	smoke(t, e)
	e.Close()
}
func TestSmokeCluster(t *testing.T) {
	e := redisengine.New(redistest.StartCluster(t, 3).Client())
	smoke(t, e)
	e.Close()
}

func TestSmokeFile(t *testing.T) {
	e, err := fileengine.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	smoke(t, e)
	e.Close()
}
