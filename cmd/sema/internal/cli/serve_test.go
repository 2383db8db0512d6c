//go:build unix

package cli_test

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"sema/internal/fixture/expect"
	"sema/internal/fixture/local"
	"sema/internal/fixture/redistest"
)

// served is sema serve, running.
type served struct {
	t    *testing.T
	cmd  *exec.Cmd
	url  string
	logs chan string // all of it, at the end

	mu   sync.Mutex
	said string // what was not asked for by says
}

// says waits for a line of the log with all of these.
func (s *served) says(words ...string) {
	s.t.Helper()
	expect.Until(s.t, "the log says "+words[0], func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		for line := range strings.Lines(s.said) {
			all := true
			for _, word := range words {
				all = all && strings.Contains(line, word)
			}
			if all {
				s.said = ""
				return true
			}
		}
		return false
	})
}

var servingAt = regexp.MustCompile(`msg"?[=:]"?serving"?[ ,]"?url"?[=:]"?([^\s"]+)`)

func serve(t *testing.T, args ...string) *served {
	t.Helper()
	ofProcesses(t)
	s := &served{t: t, cmd: exec.Command("sema", append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)...), logs: make(chan string, 1)}
	errs, err := s.cmd.StderrPipe()
	expect.OK(t, err)
	expect.OK(t, s.cmd.Start())
	lines := bufio.NewReader(errs)
	for s.url == "" {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatalf("%q, %v", s.said, err)
		}
		if found := servingAt.FindStringSubmatch(line); found != nil {
			s.url = found[1]
		}
		s.said += line
	}
	all := s.said
	go func() {
		for {
			line, err := lines.ReadString('\n')
			all += line
			s.mu.Lock()
			s.said += line
			s.mu.Unlock()
			if err != nil { // it has ended
				s.logs <- all
				return
			}
		}
	}()
	t.Cleanup(func() { _ = s.cmd.Process.Kill(); _ = s.cmd.Wait() })
	return s
}

// end ends it by TERM, and is its log.
func (s *served) end() string {
	s.t.Helper()
	expect.OK(s.t, s.cmd.Process.Signal(syscall.SIGTERM))
	log := <-s.logs
	if err := s.cmd.Wait(); err != nil {
		s.t.Errorf("%v\n%s", err, log)
	}
	return log
}

func TestServe(t *testing.T) {
	onEngines(t, func(t *testing.T, url string) {
		audit := filepath.Join(t.TempDir(), "audit")
		s := serve(t, "--url", url, "--audit", audit)
		env := "SEMA_URL=" + s.url
		if out := ok(t, env, "run", "-n", "2", "x", "--", "echo", "mine"); out != "mine\n" {
			t.Errorf("%q", out)
		}
		permit := strings.TrimSpace(ok(t, env, "acquire", "-n", "2", "x"))
		expect.Has(t, ok(t, env, "show", "x"), permit)
		expect.Has(t, ok(t, "SEMA_URL="+url, "show", "x"), "used 1")
		ok(t, env, "pause", "x")
		if out := ok(t, env, "ls"); !regexp.MustCompile(`x +2 +1 +1 +0 +paused`).MatchString(out) {
			t.Errorf("%s", out)
		}
		if code, out := run(t, env, "run", "--no-wait", "x", "--", "true"); code != 75 {
			t.Errorf("exit code %d: %s", code, out)
		}
		// Another server over the same engine knows the permit as well.
		expect.OK(t, s.cmd.Process.Kill())
		<-s.logs
		s = serve(t, "--url", url, "--audit", audit)
		env = "SEMA_URL=" + s.url
		ok(t, env, "renew", "x", permit)
		ok(t, env, "release", "x", permit)
		ok(t, env, "unpause", "x")
		ok(t, env, "run", "x", "--", "true")
		for path, want := range map[string]string{"/healthz": "alive", "/readyz": "ready", "/metrics": "sema_limit", "/": "<html", "/v1/semaphores": `"name":"x"`, "/v1/nothing": "urn:sema:no-route"} {
			if out := get(t, s.url+path); !strings.Contains(out, want) {
				t.Errorf("%s has no %s:\n%s", path, want, out)
			}
		}
		expect.Has(t, s.end(), "msg=stopped")
		text, err := os.ReadFile(audit)
		if err != nil || strings.Count(string(text), `"what":"pause"`) != 1 || strings.Count(string(text), `"what":"unpause"`) != 1 {
			t.Errorf("%v: %s", err, text)
		}
	})
}

func TestServeTellsOfItself(t *testing.T) {
	t.Parallel()
	profiles := fmt.Sprint("127.0.0.1:", redistest.FreePort(t))
	s := serve(t, "--url", fileURL(t), "--access-log", "--profile", profiles)
	ok(t, "SEMA_URL="+s.url, "run", "x", "--", "true")
	s.api("POST", "/v1/semaphores/x/permits", `{"limit":5}`)
	text := get(t, s.url+"/metrics")
	expect.Has(t, text,
		`sema_server_requests_total{route="GET /v1/engine/calls",code="1xx"} 1`, "sema_server_call_duration_seconds_count ", "sema_server_connections ",
		`sema_acquires_total{sema_name="x",result="acquired"} 1`, `sema_acquire_wait_seconds_count{sema_name="x"} 1`,
		"go_goroutines ", "process_start_time_seconds ", "sema_engine_up 1",
	)
	expect.Has(t, get(t, "http://"+profiles+"/debug/pprof/goroutine?debug=1"), "goroutine profile:")
	request, err := http.NewRequest("GET", "http://"+profiles+"/debug/pprof/", nil)
	expect.OK(t, err)
	request.Host = "page.example.org"
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	w, err := client.Do(request)
	expect.OK(t, err)
	_ = w.Body.Close()
	if w.StatusCode != 403 {
		t.Errorf("a web page may read profiles: %s", w.Status)
	}
	expect.Has(t, s.end(), `path=/metrics route="GET /metrics" status=200`, "url=http://"+profiles+"/debug/pprof/")
}

// The page to log in says, as the API does, that a token was not checked after too many wrong ones.
func TestServeLogsNobodyInWhoGuesses(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tokens")
	expect.OK(t, os.WriteFile(file, []byte("boss admin * secret-of-the-boss\n"), 0o600))
	s := serve(t, "--url", fileURL(t), "--token-file", file)
	browser := s.browser("")
	for i := range 25 {
		answer, text := s.post(browser, "/login", url.Values{"token": {fmt.Sprintf("boss.wrong-secret-%d", i)}})
		if status := map[bool]int{false: 401, true: 429}[i >= 20]; answer.StatusCode != status {
			t.Fatalf("guess %d: %s\n%s", i, answer.Status, text)
		}
	}
	answer, text := s.post(browser, "/login", url.Values{"token": {"boss.secret-of-the-boss"}})
	if answer.StatusCode != 429 || answer.Header.Get("Retry-After") == "" || !strings.Contains(text, "was not checked") || strings.Contains(text, "no such token") {
		t.Errorf("the right one: %s\n%s", answer.Status, text)
	}
}

// A log of JSON has the fields that an operation has, and none that are empty; the audit log what held before, and whose
// permit was revoked.
func TestServeLogsJSON(t *testing.T) {
	t.Parallel()
	audit := filepath.Join(t.TempDir(), "audit")
	s := serve(t, "--url", fileURL(t), "--log-format", "json", "--audit", audit)
	do := func(status int, method, path, body string) (answer map[string]any) {
		t.Helper()
		w, text := s.api(method, "/v1/semaphores/x"+path, body)
		if _ = json.Unmarshal([]byte(text), &answer); w.StatusCode != status { // most answers are empty
			t.Errorf("%s %s: %s, %v", method, path, w.Status, answer)
		}
		return answer
	}
	permit := do(200, "PUT", "/permits/a", `{"limit":5,"caps":[4],"pools":{"gpu":2},"key":["acme","alice"]}`)
	do(204, "PUT", "/limit", `{"limit":7,"caps":[3,2],"pools":{"gpu":3}}`)
	do(204, "PUT", "/keys/acme", `{"cap":2,"share":300}`)
	do(204, "POST", "/holders/"+permit["permit"].(string)+"/revoke", ``)
	want := []string{
		`"what":"limit","name":"x","limit":7,"caps":[3,2,0],"pools":{"gpu":3},"result":"done","was":{"limit":5,"caps":[4],"pools":{"gpu":2}}`,
		`"what":"set-key","name":"x","key":"acme","cap":2,"share":300,"result":"done","was":{"cap":3,"share":100}`,
		`"what":"revoke","name":"x","permit":"` + permit["permit"].(string) + `","caller":"a","key":["acme","alice"],"result":"done"`,
	}
	log := s.end()
	text, err := os.ReadFile(audit)
	expect.OK(t, err)
	for _, text := range []string{log, string(text)} {
		for _, line := range want {
			if !strings.Contains(text, line+"}") {
				t.Errorf("no %s in\n%s", line, text)
			}
		}
	}
	for line := range strings.Lines(log) {
		if !json.Valid([]byte(line)) {
			t.Errorf("no JSON: %s", line)
		}
	}
	expect.Has(t, serve(t, "--url", fileURL(t), "--log-format", "json", "--log-level", "debug").end(), `"level":"INFO"`)
	for flag, hint := range map[string]string{"--log-format": "text or json", "--log-level": "debug, info, warn or error"} {
		out, err := exec.Command("sema", "serve", "--url", fileURL(t), flag, "loud").CombinedOutput()
		if err == nil || !strings.Contains(string(out), hint) {
			t.Errorf("%v: %s", err, out)
		}
	}
}

// Pages are compressed. When a script asks for one again and again, the log has no line for each time.
func TestServeCompresses(t *testing.T) {
	t.Parallel()
	s := serve(t, "--url", fileURL(t), "--access-log")
	client := s.browser("")
	for path, want := range map[string]string{"/": "gzip", "/metrics": "gzip", "/?page=1": "gzip"} {
		r, err := http.NewRequestWithContext(expect.Within(t), "GET", s.url+path, nil)
		expect.OK(t, err)
		r.Header.Set("Accept-Encoding", "gzip")
		if path == "/?page=1" {
			r.Header.Set("Sema-Live", "1")
		}
		w, err := client.Do(r)
		expect.OK(t, err)
		_, err = io.ReadFull(w.Body, make([]byte, 10))
		_ = w.Body.Close()
		if got := w.Header.Get("Content-Encoding"); err != nil || w.StatusCode != 200 || got != want {
			t.Errorf("%s is sent as %q with %s, %v; want %q", path, got, w.Status, err, want)
		}
	}
	if log := s.end(); strings.Count(log, "path=/ route=/ status=200") != 1 {
		t.Error(log)
	}
}

func get(t *testing.T, url string) string {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	w, err := client.Get(url)
	expect.OK(t, err)
	defer func() { _ = w.Body.Close() }()
	text, err := io.ReadAll(w.Body)
	expect.OK(t, err)
	return string(text)
}

func TestServeWithTokensAndTLS(t *testing.T) {
	dir := t.TempDir()
	cert, key := certificate(t, dir)
	tokens := filepath.Join(dir, "tokens")
	expect.OK(t, os.WriteFile(tokens, []byte("ci use job- hush-hush-hush-hush\nboss admin * hush-hush-hush-boss\n"), 0o600))
	s := serve(t, "--url", fileURL(t), "--token-file", tokens, "--tls-cert", cert, "--tls-key", key)
	if !strings.HasPrefix(s.url, "https://") {
		t.Fatal(s.url)
	}
	t.Setenv("SSL_CERT_FILE", cert)
	env := "SEMA_URL=" + s.url
	t.Setenv("SEMA_SERVER_TOKEN", "ci.hush-hush-hush-hush")
	if out := ok(t, env, "run", "-n", "1", "job-1", "--", "echo", "mine"); out != "mine\n" {
		t.Errorf("%q", out)
	}
	// The command may use the server, too: its fencing token is another variable.
	expect.Has(t, ok(t, env, "run", "-n", "1", "job-1", "--", "sema", "ls"), "job-1 ")
	for token, want := range map[string]string{
		"ci.hush-hush-hush-hush": "this needs admin. Try: use a token with more rights",
		"ci.wrong-hush":          "Try: check the token, $SEMA_SERVER_TOKEN",
		"Hush":                   "Try: SEMA_SERVER_TOKEN=NAME.SECRET",
	} {
		t.Setenv("SEMA_SERVER_TOKEN", token)
		code, out := run(t, env, "limit", "job-1", "3")
		if code != 69 && code != 64 || !strings.Contains(out, want) || strings.Contains(strings.ToLower(out), "hush") {
			t.Errorf("%s: exit code %d: %s", token, code, out)
		}
	}
	t.Setenv("SEMA_SERVER_TOKEN", "ci.hush-hush-hush-hush")
	permit := strings.TrimSpace(ok(t, env, "acquire", "-n", "1", "job-2"))
	if code, out := run(t, env, "run", "--replace=running", "job-2", "--", "echo", "never"); code != 69 || !strings.Contains(out, "this needs admin") {
		t.Errorf("replaces others: exit code %d: %s", code, out)
	}
	ok(t, env, "release", "job-2", permit)
	t.Setenv("SEMA_SERVER_TOKEN", "boss.hush-hush-hush-boss")
	ok(t, env, "limit", "job-1", "3")
	if log := s.end(); strings.Contains(log, "hush") || !strings.Contains(log, "who=boss") {
		t.Errorf("%s", log)
	}
}

// browser is one that takes the server's certificate, and keeps its cookies.
func (s *served) browser(cert string) *http.Client {
	s.t.Helper()
	roots := x509.NewCertPool()
	if cert != "" {
		text, err := os.ReadFile(cert)
		expect.OK(s.t, err)
		roots.AppendCertsFromPEM(text)
	}
	jar, err := cookiejar.New(nil)
	expect.OK(s.t, err)
	c := &http.Client{Jar: jar, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}}
	s.t.Cleanup(c.CloseIdleConnections)
	return c
}

// post sends a form, as a page of the server's would.
func (s *served) post(browser *http.Client, at string, form url.Values, header ...string) (*http.Response, string) {
	s.t.Helper()
	return s.send(browser, "POST", at, form.Encode(), append([]string{"Content-Type", "application/x-www-form-urlencoded", "Origin", s.url}, header...)...)
}

// api sends JSON.
func (s *served) api(method, at, body string) (*http.Response, string) {
	s.t.Helper()
	return s.send(s.browser(""), method, at, body, "Content-Type", "application/json")
}

// send sends a request, and is the answer's status and text after all redirects.
func (s *served) send(browser *http.Client, method, at, body string, header ...string) (*http.Response, string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(expect.Within(s.t), method, s.url+at, strings.NewReader(body))
	expect.OK(s.t, err)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w, err := browser.Do(r)
	expect.OK(s.t, err)
	defer func() { _ = w.Body.Close() }()
	text, err := io.ReadAll(w.Body)
	expect.OK(s.t, err)
	return w, string(text)
}

const admin = "boss admin * hush-hush-hush-boss\n"

func writeFile(t *testing.T, text string) (path string) {
	path = filepath.Join(t.TempDir(), "file")
	expect.OK(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// The token that a browser keeps is never sent in clear where the server has TLS, or a
// proxy in front of it; HTTP/2 is spoken.
func TestServeSetsSecureCookies(t *testing.T) {
	cert, key := certificate(t, t.TempDir())
	tokens := writeFile(t, admin)
	login := url.Values{"token": {"boss.hush-hush-hush-boss"}}
	for _, c := range []struct {
		args, header []string
		want         bool
	}{
		{args: []string{"--tls-cert", cert, "--tls-key", key}, want: true},
		{args: []string{"--public-url", "https://sema.example.org"}, header: []string{"Origin", "https://sema.example.org"}, want: true},
		{args: []string{"--trusted-proxy", "127.0.0.1"}, header: []string{"X-Forwarded-Proto", "https"}, want: true},
		{header: []string{"X-Forwarded-Proto", "https"}},
	} {
		s := serve(t, append([]string{"--url", fileURL(t), "--token-file", tokens}, c.args...)...)
		browser := s.browser(cert)
		browser.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		w, _ := s.post(browser, "/login", login, c.header...)
		if len(w.Cookies()) != 1 || w.Cookies()[0].Secure != c.want {
			t.Errorf("%v %v: %s %v", c.args, c.header, w.Status, w.Header)
		}
		if h2 := w.ProtoMajor == 2; h2 != strings.HasPrefix(s.url, "https") {
			t.Errorf("%s speaks %s", s.url, w.Proto)
		}
		if log := s.end(); strings.Contains(log, "hush") {
			t.Error(log)
		}
	}
}

// The headers that nginx sends with the lines of docs/serve.md: on plain http with a
// port of its own, which the browser names in Origin.
func TestServeBehindADocumentedProxy(t *testing.T) {
	s := serve(t, "--url", fileURL(t), "--token-file", writeFile(t, admin))
	proxy := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		to, _ := url.Parse(s.url)
		r.SetURL(to)
		r.Out.Host = r.In.Host // $http_host: with the port
	}})
	defer proxy.Close()
	behind := &served{t: t, url: proxy.URL}
	if w, _ := behind.post(behind.browser(""), "/login", url.Values{"token": {"boss.hush-hush-hush-boss"}}); w.StatusCode != 200 || w.Request.URL.Path != "/" {
		t.Errorf("%s, at %s", w.Status, w.Request.URL)
	}
	page, err := os.ReadFile("../../../../docs/serve.md")
	expect.OK(t, err)
	expect.Has(t, page, "proxy_set_header Host $http_host;")
}

// Tokens and the certificate are read again when they change, and what is wrong then
// changes nothing.
func TestServeReadsAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key := certificate(t, dir)
	tokens := filepath.Join(dir, "tokens")
	put := func(text string, mode os.FileMode) { // as an editor does: by a rename
		t.Helper()
		expect.OK(t, os.WriteFile(tokens+"~", []byte(text), mode))
		expect.OK(t, os.Chmod(tokens+"~", mode))
		expect.OK(t, os.Rename(tokens+"~", tokens))
	}
	put(admin, 0o600)
	s := serve(t, "--url", fileURL(t), "--token-file", tokens, "--tls-cert", cert, "--tls-key", key)
	status := func(token string) int {
		c := s.browser(cert)
		r, err := http.NewRequest("GET", s.url+"/v1/semaphores", nil)
		expect.OK(t, err)
		r.Header.Set("Authorization", "Bearer "+token)
		w, err := c.Do(r)
		if err != nil {
			return 0
		}
		_ = w.Body.Close()
		return w.StatusCode
	}
	const boss, next = "boss.hush-hush-hush-boss", "next.hush-hush-hush-next"
	put(admin+"next read * hush-hush-hush-next\n", 0o600)
	expect.Until(t, "the second token is taken", func() bool { return status(next) == 200 })
	put("next read * hush-hush-hush-next\n", 0o600)
	expect.Until(t, "the first token is refused", func() bool { return status(boss) == 401 })
	put("nonsense\n", 0o600)
	s.says("what was read before stays", "token file, line 1")
	put(admin, 0o644)
	s.says("what was read before stays", "chmod 600")
	if got := status(next); got != 200 {
		t.Errorf("status %d", got)
	}
	put(admin, 0o600)
	expect.Until(t, "the file is right again", func() bool { return status(boss) == 200 })
	old, err := os.ReadFile(cert)
	expect.OK(t, err)
	certificate(t, dir)
	expect.Until(t, "the new certificate is shown", func() bool { return status(boss) == 200 }) // not with the old one's root
	expect.OK(t, os.WriteFile(cert, old, 0o600))
	s.says("what was read before stays", "certificate")
	if log := s.end(); strings.Contains(log, "hush") {
		t.Error(log)
	}
}

// A token file whose tokens have all expired is told of, at the start and later.
func TestServeWithExpiredTokens(t *testing.T) {
	t.Parallel()
	tokens := filepath.Join(t.TempDir(), "tokens")
	const line = "boss admin * hush-hush-hush-boss expires=%s-01-31\n"
	expect.OK(t, os.WriteFile(tokens, fmt.Appendf(nil, line, "2020"), 0o600))
	s := serve(t, "--url", fileURL(t), "--token-file", tokens)
	s.says("all tokens have expired", "level=WARN", "token file")
	expect.OK(t, os.WriteFile(tokens, fmt.Appendf(nil, line, "9999"), 0o600))
	s.says("read again")
	expect.OK(t, os.WriteFile(tokens, fmt.Appendf(nil, line, "2021"), 0o600))
	s.says("all tokens have expired")
	s.end()
}

// The dashboard's refusals and failures are in the audit log, in the words of the API.
func TestServeAuditsTheDashboard(t *testing.T) {
	audit := writeFile(t, `{"a line that broke off`)
	s := serve(t, "--url", fileURL(t), "--token-file", writeFile(t, admin+"looker read * hush-hush-hush-look\n"), "--audit", audit)
	looker, boss := s.browser(""), s.browser("")
	s.post(boss, "/login", url.Values{"token": {"boss.wrong"}})
	s.post(looker, "/login", url.Values{"token": {"looker.hush-hush-hush-look"}})
	s.post(looker, "/act", url.Values{"do": {"pause"}, "name": {"x"}})
	s.post(boss, "/login", url.Values{"token": {"boss.hush-hush-hush-boss"}})
	s.post(boss, "/act", url.Values{"do": {"pause"}, "name": {"x"}})
	s.post(boss, "/act", url.Values{"do": {"pause"}, "name": {"x"}}, "Origin", "http://evil.example")
	s.end()
	text, err := os.ReadFile(audit)
	expect.OK(t, err)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	for i, want := range []string{
		`{"a line that broke off`, `"request":"POST /login","result":"the secret of \"boss\" is wrong"`,
		`"who":"looker"`, `"what":"pause","name":"x","result":"gone"`, "page of another site",
	} {
		if i >= len(lines) || !strings.Contains(lines[i], want) {
			t.Fatalf("line %d lacks %s:\n%s", i+1, want, text)
		}
	}
	if len(lines) != 5 || strings.Contains(string(text), "hush") {
		t.Errorf("%s", text)
	}
}

// sema find finds what a caller of the API calls its permits, in all semaphores, and
// revokes them.
func TestFind(t *testing.T) {
	onEngines(t, func(t *testing.T, url string) {
		s := serve(t, "--url", url)
		for _, name := range []string{"x", "y", "z"} {
			s.api("PUT", "/v1/semaphores/"+name+"/permits/job-"+name[:1], `{"limit":1,"label":"nightly","lease_seconds":600}`)
		}
		for _, at := range []string{url, s.url} {
			env := "SEMA_URL=" + at
			if out := ok(t, env, "find", "job-x"); !regexp.MustCompile(`(?m)^x +api-\S+ +holds +job-x .*nightly$`).MatchString(out) || strings.Contains(out, "job-y") {
				t.Errorf("%s", out)
			}
			if out := ok(t, env, "find", "nightly", "--json"); strings.Count(out, `"caller": "job-`) != 3 {
				t.Errorf("%s", out)
			}
			if code, out := run(t, env, "find", "nobody"); code != 1 || !strings.Contains(out, "nobody holds or waits as nobody") {
				t.Errorf("exit code %d: %s", code, out)
			}
		}
		ok(t, "SEMA_URL="+s.url, "find", "--revoke", "nightly")
		for _, name := range []string{"x", "y", "z"} {
			expect.Has(t, ok(t, "SEMA_URL="+url, "show", name), "(revoked)")
		}
		s.end()
	})
}

// certificate writes a new one, and its key, into a directory.
func certificate(t *testing.T, dir string) (cert, key string) {
	t.Helper()
	cert, key, err := local.Certificate(dir)
	expect.OK(t, err)
	return cert, key
}

func TestServeRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	bad := filepath.Join(dir, "tokens")
	expect.OK(t, os.WriteFile(bad, []byte("ci use * short\n"), 0o600))
	open := filepath.Join(dir, "open")
	expect.OK(t, os.WriteFile(open, []byte(admin), 0o600))
	expect.OK(t, os.Chmod(open, 0o644))
	for want, args := range map[string][]string{
		"lets other hosts in, so a token file is needed": {"--listen", ":0"},
		"--listen 10.0.0.1:1 lets other hosts in":        {"--listen", "10.0.0.1:1"},
		"want HOST:PORT": {"--listen", "localhost"},
		"--tls-cert and --tls-key belong together":                  {"--tls-cert", "x"},
		"certificate: open nobody":                                  {"--tls-cert", "nobody", "--tls-key", "nobody"},
		"token file: open nobody":                                   {"--token-file", "nobody"},
		"token file, line 1: the secret is too short":               {"--token-file", bad},
		"open: others can read or write it":                         {"--token-file", open},
		"Try: chmod 600":                                            {"--token-file", open},
		"--audit-required needs --audit":                            {"--audit-required"},
		"--public-url ftp://… is no address of a site":              {"--public-url", "ftp://x"},
		"--trusted-proxy: \"x\" is neither a network":               {"--trusted-proxy", "x"},
		"audit log: open ":                                          {"--audit", filepath.Join(dir, "no", "dir")},
		"the URL nonsense is of no known kind":                      {"--url", "nonsense"},
		"want sema serve without arguments":                         {"x"},
		"--profile 0.0.0.0:6060: want an address of this host only": {"--profile", "0.0.0.0:6060"},
		"--profile 6060: want an address":                           {"--profile", "6060"},
	} {
		code, out := run(t, "SEMA_URL="+fileURL(t), append([]string{"serve"}, args...)...)
		if code != 64 || !strings.Contains(out, want) {
			t.Errorf("%v: exit code %d: %s; want %q", args, code, out, want)
		}
	}
}

// A server does not start on an engine that will refuse everything.
func TestServeRefusesAnEngineWhoseErrorLasts(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	code, out := run(t, "", "serve", "--listen", "127.0.0.1:0", "--url", s.URL()+"/99")
	if code == 0 || !strings.Contains(out, "out of range") || strings.Contains(out, "serving") {
		t.Errorf("exit code %d: %s", code, out)
	}
}

// A server whose engine is away at its start says so, is not ready, and serves as soon as the engine has come.
func TestServeStartsBeforeItsEngine(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]struct{ leave, come func(*redistest.Server) }{
		"gone":   {(*redistest.Server).Kill, (*redistest.Server).Restart},
		"silent": {(*redistest.Server).Stop, (*redistest.Server).Continue},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redis := redistest.Start(t)
			of.leave(redis)
			s := serve(t, "--url", redis.URL())
			s.says("the engine does not answer yet", "level=WARN", "check that the server runs")
			status := func(path string) int {
				resp, err := http.Get(s.url + path)
				expect.OK(t, err)
				expect.OK(t, resp.Body.Close())
				return resp.StatusCode
			}
			if ready, alive := status("/readyz"), status("/healthz"); ready != http.StatusServiceUnavailable || alive != http.StatusOK {
				t.Errorf("ready: %d, alive: %d", ready, alive)
			}
			of.come(redis)
			expect.Until(t, "it is ready", func() bool { return status("/readyz") == http.StatusOK })
			if code, out := run(t, "SEMA_URL="+s.url, "run", "x", "--", "true"); code != 0 {
				t.Errorf("exit code %d: %s", code, out)
			}
			s.end()
		})
	}
}

// A page of the dashboard lists events, and the actions of operators over the API.
func TestThePageShowsWhatOperatorsDo(t *testing.T) {
	s := serve(t, "--url", "file://"+t.TempDir())
	env := "SEMA_URL=" + s.url
	permit := strings.TrimSpace(ok(t, env, "acquire", "--label", "nightly", "x"))
	page := func(wants ...string) {
		t.Helper()
		expect.Until(t, strings.Join(wants, ", "), func() bool {
			out := get(t, s.url+"/semaphore?name=x")
			return !slices.ContainsFunc(wants, func(want string) bool { return !strings.Contains(out, want) })
		})
	}
	page("nightly</bdi> holds a permit")
	ok(t, env, "limit", "x", "3")
	ok(t, env, "limit", "x", "--pool", "gpu=2")
	ok(t, env, "limit", "x", "4", "--pool", "gpu=0", "--caps", "2")
	ok(t, env, "release", "x", permit)
	page("nightly</bdi> has no permit any more", "local</bdi> sets the limit to 3<", "sets pools gpu=2<", "sets the limit to 4, caps 2, pools gpu=0<", "releases permit "+permit)
	s.end()
}
