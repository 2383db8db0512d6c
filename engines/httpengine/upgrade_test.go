//go:build unix

package httpengine_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"sema/engine"
	"sema/engines/httpengine"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/pipenet"
	"sema/internal/protocol"
	"sema/internal/wire"
)

// Bytes that are no call end the connection, or are answered with a problem.
func TestMalformedCalls(t *testing.T) {
	addr := serve(t, memory, nil, nil).address()
	for name, c := range map[string]struct{ sent, want string }{
		"huge":      {string(binary.AppendUvarint(nil, 1<<40)), ""},
		"no length": {strings.Repeat("\xff", 20), ""},
		"malformed": {"\x03\x0a\xff\xff", "urn:sema:malformed"},
		"no name":   {"\x00", "urn:sema:argument"},
		"a session that is not open": {
			string(append([]byte{18}, wire.AppendStep(nil, &wire.Step{Client: "http.local.abc.1"})...)), "urn:sema:no-session"},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := net.Dial("tcp", addr)
			expect.OK(t, err)
			defer func() { _ = conn.Close() }()
			_, err = io.WriteString(conn, "GET /v1/engine/calls HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: "+wire.Upgrade+"\r\n\r\n"+c.sent)
			expect.OK(t, err)
			in := bufio.NewReader(conn)
			answer, err := http.ReadResponse(in, nil)
			expect.OK(t, err)
			if answer.StatusCode != http.StatusSwitchingProtocols {
				t.Fatal(answer.Status)
			}
			if c.want == "" {
				if rest, err := io.ReadAll(in); err != nil || len(rest) > 0 {
					t.Errorf("%q, %v", rest, err)
				}
				return
			}
			size, err := binary.ReadUvarint(in)
			expect.OK(t, err)
			text := make([]byte, size)
			_, err = io.ReadFull(in, text)
			expect.OK(t, err)
			if text[0] != wire.KindProblem || !strings.Contains(string(text), c.want) {
				t.Errorf("%q; want %s", text, c.want)
			}
		})
	}
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
