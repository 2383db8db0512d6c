package pipenet_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"sema/lab/expect"
	"sema/lab/pipenet"
)

// connect returns both ends of a connection.
func connect(t *testing.T, l *pipenet.Listener) (near, far net.Conn) {
	t.Helper()
	accepted := make(chan net.Conn, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			t.Error(err)
		}
		accepted <- c
	}()
	near, err := l.Dial(t.Context(), "tcp", "anywhere:80")
	expect.OK(t, err)
	return near, <-accepted
}

func TestAConnectionIsTwoWays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := connect(t, pipenet.Listen())
		if near.LocalAddr().String() != far.RemoteAddr().String() || near.RemoteAddr().String() != far.LocalAddr().String() {
			t.Errorf("%v to %v, and %v to %v", near.LocalAddr(), near.RemoteAddr(), far.LocalAddr(), far.RemoteAddr())
		}
		if _, _, err := net.SplitHostPort(near.LocalAddr().String()); err != nil {
			t.Error(err)
		}
		// Both write before either reads.
		for _, c := range []net.Conn{near, far} {
			if n, err := io.WriteString(c, "hello"); n != 5 || err != nil {
				t.Fatal(n, err)
			}
		}
		for _, c := range []net.Conn{near, far} {
			p := make([]byte, 5)
			if _, err := io.ReadFull(c, p); err != nil || string(p) != "hello" {
				t.Fatalf("%q %v", p, err)
			}
		}
	})
}

func TestAnEndIsSeenAtTheOtherEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := connect(t, pipenet.Listen())
		_, err := io.WriteString(near, "last words")
		expect.OK(t, err)
		expect.OK(t, near.(interface{ CloseWrite() error }).CloseWrite())
		_, err = io.WriteString(near, "more")
		expect.Is(t, err, net.ErrClosed)
		if all, err := io.ReadAll(far); string(all) != "last words" || err != nil {
			t.Fatalf("%q %v", all, err)
		}

		// The other way still goes, until somebody closes it.
		_, err = io.WriteString(far, "an answer")
		expect.OK(t, err)
		read := make(chan error)
		go func() {
			_, err := io.Copy(io.Discard, near)
			read <- err
		}()
		synctest.Wait()
		expect.OK(t, near.Close())
		expect.OK(t, near.Close())
		expect.Is(t, <-read, net.ErrClosed)
		_, err = io.WriteString(far, "and another")
		expect.Is(t, err, syscall.EPIPE)
		if all, err := io.ReadAll(far); len(all) != 0 || err != nil {
			t.Fatalf("%q %v", all, err)
		}
	})
}

func TestAWriterWaitsForItsReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := connect(t, pipenet.Listen())
		defer far.Close()
		text := strings.Repeat("much ", 100_000)
		wrote := make(chan error, 1)
		go func() {
			_, err := io.WriteString(near, text)
			wrote <- errors.Join(err, near.Close())
		}()
		synctest.Wait()
		select {
		case err := <-wrote:
			t.Fatalf("half a megabyte was written that nobody reads: %v", err)
		default:
		}
		if all, err := io.ReadAll(far); string(all) != text || err != nil {
			t.Errorf("%d bytes of %d, %v", len(all), len(text), err)
		}
		expect.OK(t, <-wrote)
	})
}

func TestDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := connect(t, pipenet.Listen())
		defer far.Close()
		defer near.Close()
		p, began := make([]byte, 1), time.Now()
		expect.OK(t, near.SetDeadline(began.Add(time.Hour)))
		_, err := near.Read(p)
		expect.Is(t, err, os.ErrDeadlineExceeded)
		var timeout net.Error
		if passed := time.Since(began); passed != time.Hour || !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Errorf("%v after %v", err, passed)
		}
		n, err := near.Write(make([]byte, 1<<20))
		expect.Is(t, err, os.ErrDeadlineExceeded)
		if n != 0 {
			t.Errorf("%d bytes written after the deadline", n)
		}

		// A deadline that comes later frees who waits already: so net/http ends a read.
		expect.OK(t, near.SetDeadline(time.Time{}))
		read := make(chan error)
		go func() {
			_, err := near.Read(p)
			read <- err
		}()
		synctest.Wait()
		expect.OK(t, near.SetReadDeadline(time.Unix(1, 0)))
		expect.Is(t, <-read, os.ErrDeadlineExceeded)
		expect.OK(t, near.SetReadDeadline(time.Time{}))
		go far.Write([]byte("!"))
		if _, err := near.Read(p); err != nil || p[0] != '!' {
			t.Error(p, err)
		}
	})
}

func TestAClosedListenerRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := pipenet.Listen()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := l.Dial(ctx, "tcp", "")
		expect.Is(t, err, context.DeadlineExceeded)

		near, far := connect(t, l)
		accepted := make(chan error)
		go func() {
			_, err := l.Accept()
			accepted <- err
		}()
		synctest.Wait()
		expect.OK(t, l.Close())
		expect.OK(t, l.Close())
		expect.Is(t, <-accepted, net.ErrClosed)
		_, err = l.Dial(t.Context(), "tcp", "")
		expect.Is(t, err, syscall.ECONNREFUSED)
		if _, err := io.WriteString(near, "still there"); err != nil {
			t.Error(err)
		}
		near.Close()
		if all, err := io.ReadAll(far); string(all) != "still there" || err != nil {
			t.Errorf("%q %v", all, err)
		}
	})
}

func TestDialFindsTheListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, l := range []*pipenet.Listener{pipenet.Listen(), pipenet.Listen()} {
			go l.Accept()
			c, err := pipenet.Dial(t.Context(), "tcp", l.Addr().String())
			expect.OK(t, err)
			if c.RemoteAddr() != l.Addr() {
				t.Errorf("connected to %v, want %v", c.RemoteAddr(), l.Addr())
			}
			expect.OK(t, l.Close())
			_, err = pipenet.Dial(t.Context(), "tcp", l.Addr().String())
			expect.Is(t, err, syscall.ECONNREFUSED)
		}
	})
}

// What net/http does to its connections, in virtual time.
func TestAServerInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left := make(chan struct{})
		mux := http.NewServeMux()
		mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) })
		mux.HandleFunc("/slow", func(w http.ResponseWriter, r *http.Request) {
			<-r.Context().Done() // the client left
			close(left)
		})
		mux.HandleFunc("/refuse", func(w http.ResponseWriter, r *http.Request) { http.Error(w, "no", http.StatusForbidden) })
		mux.HandleFunc("/raw", func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			c, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			rw.WriteString("HTTP/1.1 200 OK\r\n\r\nraw")
			rw.Flush()
		})
		configured := false
		s := pipenet.Serve(mux, func(*http.Server) { configured = true })
		defer s.Close()
		if !configured {
			t.Error("nobody was asked to configure the server")
		}

		text := strings.Repeat("much ", 100_000)
		for path, want := range map[string]string{"/echo": text, "/refuse": "no\n", "/raw": "raw"} {
			for range 3 {
				r, err := s.Client().Post(s.URL+path, "text/plain", strings.NewReader(text))
				expect.OK(t, err)
				body, err := io.ReadAll(r.Body)
				r.Body.Close()
				if string(body) != want || err != nil {
					t.Errorf("%s: %d bytes, %v", path, len(body), err)
				}
			}
		}

		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		began := time.Now()
		r, err := http.NewRequestWithContext(ctx, "GET", s.URL+"/slow", nil)
		expect.OK(t, err)
		_, err = s.Client().Do(r)
		expect.Is(t, err, context.DeadlineExceeded)
		<-left
		if passed := time.Since(began); passed != time.Hour {
			t.Errorf("the handler knew after %v", passed)
		}
	})
}
