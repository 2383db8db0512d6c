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

	"sema/engine/memengine"
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
