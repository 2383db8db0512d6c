package fileengine

import (
	"context"
	"testing"

	"sema/internal/fixture/expect"
	"sema/internal/protocol"
)

// BenchmarkStart measures a program that opens the engine, acquires and releases one
// permit, and closes the engine.
func BenchmarkStart(b *testing.B) {
	dir := b.TempDir()
	for b.Loop() {
		e, err := New(dir, nil)
		expect.OK(b, err)
		u := openUser(b, e, "x", 1)
		expect.OK(b, u.release(u.take(b)))
		expect.OK(b, e.Close())
	}
}

// BenchmarkUncontended measures an acquire and a release.
func BenchmarkUncontended(b *testing.B) {
	u := openUser(b, openEngine(b, b.TempDir()), "x", 1)
	for b.Loop() {
		expect.OK(b, u.release(u.take(b)))
	}
}

// BenchmarkStepBesideQueue measures a renewal while 10,000 tickets wait.
func BenchmarkStepBesideQueue(b *testing.B) {
	e := openEngine(b, b.TempDir())
	u, others := openUser(b, e, "x", 1), openUser(b, e, "x", 1)
	held := u.take(b)
	var c protocol.Call
	for range 10_000 {
		c.Requests = append(c.Requests, others.ask(true))
	}
	c.Number = others.number.Add(1)
	_, err := others.session.Step(context.Background(), c)
	expect.OK(b, err)
	for b.Loop() {
		_, err := u.call(protocol.Request{Kind: protocol.Renew, ID: held, Lease: u.lease})
		expect.OK(b, err)
	}
}
