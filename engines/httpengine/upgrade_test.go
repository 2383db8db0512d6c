//go:build unix

package httpengine_test

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"sema/internal/fixture/expect"
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
