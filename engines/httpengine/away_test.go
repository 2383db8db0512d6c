package httpengine_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"sema"
	"sema/engines/httpengine"
	"sema/internal/fixture/expect"
)

// Close does not wait for a silent server until the lease of one hour ends.
func TestCloseWithASilentServer(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	expect.OK(t, err)
	defer func() { _ = silent.Close() }() // no connection is ever answered
	e, err := httpengine.New("http://"+silent.Addr().String(), nil)
	expect.OK(t, err)
	defer func() { expect.OK(t, e.Close()) }()
	s, err := sema.New(e, "x", 1, &sema.Options{Lease: time.Hour})
	expect.OK(t, err)
	if _, err := s.Acquire(context.Background()); !errors.Is(err, sema.ErrEngine) {
		t.Error(err)
	}
	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	select {
	case err := <-closed:
		expect.OK(t, err)
	case <-expect.Within(t).Done():
		t.Fatal("Close waits for the lease")
	}
}
