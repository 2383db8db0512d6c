package semahttp_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"sema"
	"sema/engines/memengine"
	"sema/internal/fixture/expect"
	"sema/semahttp"
)

// echo upgrades to a protocol that says everything again.
func echo(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Connection", "Upgrade")
	w.Header().Set("Upgrade", "echo")
	w.WriteHeader(http.StatusSwitchingProtocols)
	c, rw, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(err)
	}
	defer func() { _ = c.Close() }()
	for {
		line, err := rw.ReadString('\n')
		if err != nil {
			return
		}
		if _, err := rw.WriteString(line); err != nil || rw.Flush() != nil {
			return
		}
	}
}

// upgrade asks for echo, under a context that ends with the handshake, as
// clients of WebSockets do.
func upgrade(t *testing.T, rt http.RoundTripper, u string) (*http.Response, *bufio.ReadWriter) {
	t.Helper()
	handshake, cancel := context.WithCancel(expect.Within(t))
	defer cancel()
	r := request(t, handshake, u)
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", "echo")
	resp, err := rt.RoundTrip(r)
	expect.OK(t, err)
	c, ok := resp.Body.(io.ReadWriteCloser)
	if resp.StatusCode != http.StatusSwitchingProtocols || !ok {
		t.Fatalf("%s, body %T; want 101 and a body to write to", resp.Status, resp.Body)
	}
	return resp, bufio.NewReadWriter(bufio.NewReader(c), bufio.NewWriter(c))
}

// say says a word and expects it back.
func say(t *testing.T, rw *bufio.ReadWriter) {
	t.Helper()
	_, err := rw.WriteString("hello\n")
	expect.OK(t, err)
	expect.OK(t, rw.Flush())
	line, err := rw.ReadString('\n')
	if err != nil || line != "hello\n" {
		t.Fatalf("heard %q, %v", line, err)
	}
}

func TestAnUpgradedConnectionKeepsItsPermitUntilClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sem := newSem(t, 1)
		resp, rw := upgrade(t, transport(t, sem), serve(t, echo))
		for range 3 { // the handshake's context has ended
			say(t, rw)
		}
		if n := used(t, sem); n != 1 {
			t.Fatalf("%d held", n)
		}
		expect.OK(t, resp.Body.Close())
		nothingHeld(t, sem)
	})
}

func TestAnUpgradedConnectionEndsWithItsPermit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sem := newSem(t, 1)
		resp, rw := upgrade(t, transport(t, sem), serve(t, echo))
		say(t, rw)
		revoke(t, sem)
		if _, err := rw.ReadString('\n'); err == nil {
			t.Error("the connection is still there")
		}
		if _, err := resp.Body.Read(make([]byte, 1)); !errors.Is(err, sema.ErrLost) {
			t.Errorf("reading: %v", err)
		}
		if _, err := resp.Body.(io.Writer).Write([]byte("x")); !errors.Is(err, sema.ErrLost) {
			t.Errorf("writing: %v", err)
		}
		expect.Until(t, "the permit is back", func() bool { return used(t, sem) == 0 })
	})
}

func TestAnUpgradedConnectionThatNobodyClosesIsFound(t *testing.T) {
	sem, told := newSem(t, 1), make(chan semahttp.Abandoned, 1)
	tr := transport(t, sem)
	tr.Observer.Abandoned = func(a semahttp.Abandoned) { told <- a }
	func() {
		_, rw := upgrade(t, tr, serve(t, echo))
		say(t, rw)
	}()
	collectUntil(t, "the connection is found", func() bool { return len(told) == 1 })
	nothingHeld(t, sem)
}

// throughProxy is echo behind a reverse proxy that is limited on both sides.
func throughProxy(t *testing.T, in, out *sema.Semaphore, observer semahttp.Observer) string {
	t.Helper()
	target, err := url.Parse(serve(t, echo))
	expect.OK(t, err)
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport = transport(t, out)
	return serve(t, (&semahttp.Handler{Next: proxy, Limit: by(in), Observer: observer}).ServeHTTP)
}

func TestAnUpgradeThroughAProxy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, out := newSem(t, 1), newSem(t, 1)
		base := connections(t)
		resp, rw := upgrade(t, base, throughProxy(t, in, out, semahttp.Observer{}))
		say(t, rw)
		if used(t, in) != 1 || used(t, out) != 1 {
			t.Fatalf("%d and %d held", used(t, in), used(t, out))
		}
		expect.OK(t, resp.Body.Close())
		expect.Until(t, "both permits are back", func() bool { return used(t, in) == 0 && used(t, out) == 0 })

		// The proxy's own permit is lost.
		resp, rw = upgrade(t, base, throughProxy(t, in, out, semahttp.Observer{}))
		say(t, rw)
		revoke(t, in)
		if _, err := rw.ReadString('\n'); err == nil {
			t.Error("the connection is still there")
		}
		expect.OK(t, resp.Body.Close())
		expect.Until(t, "both permits are back", func() bool { return used(t, in) == 0 && used(t, out) == 0 })
	})
}

// Either side may end a connection: what it has cost is settled before the permit is back.
func TestAnUpgradeSettles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, memengine.New(), "llm", 1, &sema.Options{Pools: "tpm=1000/24h"})
		target, err := url.Parse(serve(t, echo))
		expect.OK(t, err)
		proxy := httputil.NewSingleHostReverseProxy(target)
		proxy.Transport = connections(t)
		proxy.ModifyResponse = func(a *http.Response) error {
			semahttp.Settle(a, func(_ *http.Response, end []byte) map[string]int { return map[string]int{"tpm": 7 * len(end)} })
			return nil
		}
		resp, rw := upgrade(t, connections(t), serve(t, (&semahttp.Handler{Next: proxy, Limit: by(s, sema.Take("tpm", 500))}).ServeHTTP))
		say(t, rw)
		expect.OK(t, resp.Body.Close())
		expect.Until(t, "the permit is back", func() bool { return used(t, s) == 0 })
		if n := usedOf(t, s); n == 500 || n%7 != 0 {
			t.Errorf("%d used", n)
		}
	})
}

// hijacking serves one request whose connection is taken over, and returns what
// its handler has and the client's side.
func hijacking(t *testing.T, sem *sema.Semaphore, observer semahttp.Observer) (net.Conn, *bufio.ReadWriter, net.Conn) {
	t.Helper()
	type taken struct {
		c  net.Conn
		rw *bufio.ReadWriter
	}
	got := make(chan taken, 1)
	h := &semahttp.Handler{Limit: by(sem), Observer: observer}
	h.Next = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
		}
		got <- taken{c, rw}
	})
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	client, err := net.Dial("tcp", s.Listener.Addr().String())
	expect.OK(t, err)
	t.Cleanup(func() { _ = client.Close() })
	_, err = io.WriteString(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	expect.OK(t, err)
	server := <-got
	return server.c, server.rw, client
}

func TestAHijackedConnectionKeepsItsPermitUntilClosed(t *testing.T) {
	sem := newSem(t, 1)
	server, rw, client := hijacking(t, sem, semahttp.Observer{})
	_, err := rw.WriteString("hi\n")
	expect.OK(t, err)
	expect.OK(t, rw.Flush())
	if line, err := bufio.NewReader(client).ReadString('\n'); err != nil || line != "hi\n" {
		t.Errorf("the client got %q, %v", line, err)
	}
	if n := used(t, sem); n != 1 { // though the handler has returned
		t.Errorf("%d held", n)
	}
	half := server.(interface{ CloseWrite() error })
	expect.OK(t, half.CloseWrite())
	if _, err := client.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("after CloseWrite: %v", err)
	}
	if _, ok := server.(interface{ NetConn() net.Conn }).NetConn().(*net.TCPConn); !ok {
		t.Error("the connection beneath is not of TCP")
	}
	expect.OK(t, server.Close())
	expect.OK(t, server.Close())
	nothingHeld(t, sem)
}

func TestAHijackedConnectionEndsWithItsPermit(t *testing.T) {
	sem := newSem(t, 1)
	server, _, client := hijacking(t, sem, semahttp.Observer{})
	revoke(t, sem)
	_, err := client.Read(make([]byte, 1))
	if err == nil || errors.Is(err, net.ErrClosed) {
		t.Errorf("the client reads: %v", err)
	}
	if _, err := server.Read(make([]byte, 1)); !errors.Is(err, sema.ErrRevoked) {
		t.Errorf("the handler reads: %v", err)
	}
	if _, err := server.Write([]byte("x")); !errors.Is(err, sema.ErrRevoked) {
		t.Errorf("the handler writes: %v", err)
	}
	expect.Until(t, "the permit is back", func() bool { return used(t, sem) == 0 })
}

func TestAHijackedConnectionThatNobodyClosesIsFound(t *testing.T) {
	sem, told := newSem(t, 1), make(chan semahttp.Abandoned, 1)
	_, rw, client := hijacking(t, sem, semahttp.Observer{Abandoned: func(a semahttp.Abandoned) { told <- a }})
	for range 5 { // the writer keeps the connection from the garbage collector
		collectUntil(t, "a collection", func() bool { return true })
	}
	_, err := rw.WriteString("hi\n")
	expect.OK(t, err)
	expect.OK(t, rw.Flush())
	rw = nil
	collectUntil(t, "the connection is found", func() bool { return len(told) == 1 })
	if a := <-told; a.Method != "GET" || a.URL != "/" {
		t.Errorf("told %+v", a)
	}
	expect.OK(t, client.SetReadDeadline(time.Now().Add(expect.Patience)))
	if all, err := io.ReadAll(client); err != nil || string(all) != "hi\n" {
		t.Errorf("the client read %q, %v; want it closed", all, err)
	}
	nothingHeld(t, sem)
}
