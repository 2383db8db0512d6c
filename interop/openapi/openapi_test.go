//go:build interop

// Package openapi holds the server's description of its API against tools of
// others: schemathesis makes requests of it and judges the answers, and
// openapi-python-client makes a client of it. The tests are behind the build tag
// interop; run.sh fetches the tools and runs them.
package openapi

import (
	"cmp"
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"sema/engines/memengine"
	"sema/internal/fixture/expect"
	"sema/server"
)

const secret = "boss.secret-of-the-boss"

// serve has a server over memory. Its streams end soon: a tool reads them to the end.
func serve(t *testing.T, tokens bool) (url string) {
	t.Helper()
	o := server.Options{}
	if tokens {
		var err error
		o.Tokens, err = server.ReadTokens(strings.NewReader("boss admin * secret-of-the-boss\n"))
		expect.OK(t, err)
	}
	e := memengine.New()
	s, err := server.New(e, &o)
	expect.OK(t, err)
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/hold") || r.URL.Path == "/v1/events" {
			ctx, cancel := context.WithTimeout(r.Context(), 100*time.Millisecond)
			defer cancel()
			r = r.WithContext(ctx)
		}
		s.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		s.Close()
		h.Close()
		_ = e.Close()
	})
	return h.URL
}

// run runs a tool to its end, which must be success.
func run(t *testing.T, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
	return string(out)
}

// Whatever schemathesis asks is answered as the description says. SEMA_SCHEMA_SEED
// repeats a run; SEMA_SCHEMA_EXAMPLES is how many requests it tries of each kind, 200 if not set.
func TestSchemathesis(t *testing.T) {
	t.Parallel()
	examples, err := strconv.Atoi(cmp.Or(os.Getenv("SEMA_SCHEMA_EXAMPLES"), "200"))
	expect.OK(t, err)
	for name, tokens := range map[string]bool{"everybody": false, "tokens": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // most of it is waiting, by requests that ask for that
			url := serve(t, tokens)
			args := []string{
				"--config-file", "schemathesis.toml", "run", url + "/v1/openapi.json", "--url", url,
				"--max-examples", strconv.Itoa(examples), "--request-timeout", "30", "--generation-database", "none", "--no-color",
			}
			if seed := os.Getenv("SEMA_SCHEMA_SEED"); seed != "" {
				args = append(args, "--seed", seed)
			}
			if tokens {
				args = append(args, "--header", "Authorization: Bearer "+secret)
			}
			here, err := filepath.Abs(".")
			expect.OK(t, err)
			out := run(t, []string{"SCHEMATHESIS_HOOKS=hooks", "PYTHONPATH=" + here, "PYTHONDONTWRITEBYTECODE=1"}, "schemathesis", args...)
			t.Log(out)
			made := regexp.MustCompile(`(\d+) generated`).FindStringSubmatch(out)
			if made == nil {
				t.Fatal("it does not say how many cases there were")
			}
			if n, _ := strconv.Atoi(made[1]); n < 10*examples {
				t.Errorf("%d cases; want %d at least", n, 10*examples)
			}
		})
	}
}

// A client that is made of the description can be used.
func TestGeneratedClient(t *testing.T) {
	t.Parallel()
	url := serve(t, true)
	dir := filepath.Join(t.TempDir(), "made")
	out := run(t, nil, "openapi-python-client", "generate", "--url", url+"/v1/openapi.json", "--output-path", dir)
	t.Log(out)
	out = run(t, []string{"SEMA_URL=" + url, "SEMA_SERVER_TOKEN=" + secret, "PYTHONDONTWRITEBYTECODE=1"}, "python3", "smoke.py", dir)
	expect.Has(t, out, "works")
}
