package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"sema/engines/memengine"
	"sema/internal/fixture/expect"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPrintsWhatTheDocsShow(t *testing.T) {
	out := &strings.Builder{}
	if err := show(t.Context(), memengine.New(), map[string]int{"large": 2, "small": 4}, out); err != nil {
		t.Fatal(err)
	}
	docs, err := os.ReadFile("../../docs/http.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := "    go run ./examples/gateway\n\n    " + strings.ReplaceAll(strings.TrimSpace(out.String()), "\n", "\n    ") + "\n"
	if !strings.Contains(string(docs), shown) {
		t.Errorf("docs/http.md does not show\n%s", shown)
	}
}

func TestWhatIsNoRequestForAModel(t *testing.T) {
	target, err := url.Parse("http://127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	g, err := newGateway(memengine.New(), target, map[string]int{"a": 1}, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer g.close()
	for body, want := range map[string]int{"": 400, "{": 400, "{}": 404, `{"model":"b"}`: 404, strings.Repeat("x", maxRequest+1): 413} {
		w := httptest.NewRecorder()
		g.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", io.NopCloser(strings.NewReader(body))))
		if w.Code != want {
			t.Errorf("%.20q: %d, want %d", body, w.Code, want)
		}
	}
}

func TestArguments(t *testing.T) {
	for _, caps := range []string{"", "large", "=1", "large=", "large=x", "large=1,"} {
		if _, err := parseCaps(caps); err == nil {
			t.Errorf("-cap %q was taken", caps)
		}
	}
	for _, c := range []struct{ upstream, caps string }{{"", "a=1"}, {"nowhere", "a=1"}, {"http://127.0.0.1:1", "a=0"}} {
		if err := start(t.Context(), "127.0.0.1:0", c.upstream, "", c.caps); err == nil {
			t.Errorf("-upstream %q -cap %q was taken", c.upstream, c.caps)
		}
	}
}

func TestAGatewayStopsWhenToldTo(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- start(ctx, "127.0.0.1:0", "http://127.0.0.1:1", "", "a=1") }()
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// Told to stop, a gateway refuses the request that waits, and lets the one that streams end.
func TestAGatewayLetsStreamsEnd(t *testing.T) {
	caps := map[string]int{"a": 1}
	behind := httptest.NewServer(newUpstream(caps))
	defer behind.Close()
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	target, err := url.Parse(behind.URL)
	if err != nil {
		t.Fatal(err)
	}
	g, err := newGateway(memengine.New(), target, caps, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer g.close()
	front := httptest.NewServer(g)
	defer front.Close()
	streaming, leave := context.WithCancel(t.Context())
	defer leave()
	stream, err := ask(streaming, front.URL, "a", true)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stream.Body.Close() }()
	refused := make(chan int, 1)
	go func() {
		resp, err := ask(t.Context(), front.URL, "a", false)
		if err != nil {
			t.Error(err)
			refused <- 0
			return
		}
		_ = resp.Body.Close()
		refused <- resp.StatusCode
	}()
	expect.Until(t, "one waits", func() bool {
		st, err := g.models["a"].State(t.Context())
		return err == nil && st.Waiting() == 1
	})
	ended := make(chan error, 1)
	go func() { ended <- g.shutdown(t.Context(), front.Config) }()
	if status := <-refused; status != http.StatusServiceUnavailable {
		t.Errorf("the request that waited: %d", status)
	}
	select {
	case err := <-ended:
		t.Error("the stream was not waited for:", err)
	default:
	}
	leave()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
