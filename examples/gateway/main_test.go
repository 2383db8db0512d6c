package main

import (
	"context"
	"io"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"sema/engines/memengine"
	"sema/examples/internal/page"
	"sema/internal/fixture/expect"
)

func TestMain(m *testing.M) {
	// A pool of go-redis that is closed dials on for a second.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

func TestPrintsWhatTheDocsShow(t *testing.T) {
	page.Shows(t, "../../docs/llm.md", "cd examples && go run ./gateway", func(ctx context.Context, out io.Writer) error {
		return show(ctx, memengine.New(), out)
	})
}

func TestWhatIsNoRequestForAModel(t *testing.T) {
	behind := httptest.NewServer(newUpstream())
	defer behind.Close()
	g, err := begin(memengine.New(), behind.URL, ours)
	expect.OK(t, err)
	defer g.end()
	for _, ask := range []struct {
		organisation, body string
		want               int
	}{
		{"", `{"model":"large","max_tokens":1}`, 401},
		{"nobody", `{"model":"large","max_tokens":1}`, 401},
		{"acme", "{", 400},
		{"acme", `{"model":"large"}`, 400},
		{"acme", `{"model":"none","max_tokens":1}`, 404},
		{"acme", `{"model":"large","max_tokens":20001}`, 413}, // more than there is at once
		{"acme", `{"model":"large","max_tokens":9223372036854775807}`, 413},
		{"acme", strings.Repeat("x", 1<<20+1), 413},
		{"acme", `{"model":"large","max_tokens":1}`, 200},
	} {
		r := httptest.NewRequest("POST", "/", strings.NewReader(ask.body))
		r.Header.Set("Organisation", ask.organisation)
		r.Header.Set("User", "alice")
		w := httptest.NewRecorder()
		if g.gateway.ServeHTTP(w, r); w.Code != ask.want {
			t.Errorf("%s, %.40q: %d, want %d", ask.organisation, ask.body, w.Code, ask.want)
		}
	}
}

func TestAGatewayStopsWhenToldTo(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- start(ctx, "127.0.0.1:0", "http://127.0.0.1:1", "") }()
	stop()
	expect.OK(t, <-ended)
}

// Told to stop, a gateway refuses the request that waits, and lets the one that streams end.
func TestAGatewayLetsStreamsEnd(t *testing.T) {
	behind := httptest.NewServer(newUpstream())
	defer behind.Close()
	g, err := begin(memengine.New(), behind.URL, ours)
	expect.OK(t, err)
	defer g.end()
	streaming, leave := context.WithCancel(t.Context())
	defer leave()
	for range 2 { // all that a user may have
		stream, err := request{"acme", "alice", "large", 500, 1}.send(streaming, g.URL, "yes")
		expect.OK(t, err)
		defer func() { _ = stream.Body.Close() }()
	}
	refused := make(chan string, 1)
	go func() {
		resp, err := request{"acme", "alice", "large", 500, 1}.send(t.Context(), g.URL, "")
		if err != nil {
			refused <- err.Error()
			return
		}
		_ = resp.Body.Close()
		refused <- resp.Status
	}()
	expect.Until(t, "one waits", func() bool {
		st, err := g.gateway.semaphores["large"].State(t.Context())
		return err == nil && st.Waiting() == 1
	})
	ended := make(chan error, 1)
	go func() { ended <- g.gateway.shutdown(t.Context(), g.Config) }()
	if got := <-refused; got != "503 Service Unavailable" {
		t.Errorf("the request that waited: %s", got)
	}
	select {
	case err := <-ended:
		t.Error("the stream was not waited for:", err)
	default:
	}
	leave()
	expect.OK(t, <-ended)
}
