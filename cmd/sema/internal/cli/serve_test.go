//go:build unix

package cli_test

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"sema/lab/expect"
	"sema/lab/redistest"
)

// served is sema serve, running.
type served struct {
	t    *testing.T
	cmd  *exec.Cmd
	url  string
	logs chan string // all of it, at the end
}

var servingAt = regexp.MustCompile(`msg=serving url=(\S+)`)

func serve(t *testing.T, args ...string) *served {
	t.Helper()
	ofProcesses(t)
	s := &served{t: t, cmd: exec.Command("sema", append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)...), logs: make(chan string, 1)}
	errs, err := s.cmd.StderrPipe()
	expect.OK(t, err)
	expect.OK(t, s.cmd.Start())
	lines := bufio.NewReader(errs)
	first, err := lines.ReadString('\n')
	found := servingAt.FindStringSubmatch(first)
	if err != nil || found == nil {
		t.Fatalf("%q, %v", first, err)
	}
	s.url = found[1]
	go func() {
		rest, _ := io.ReadAll(lines) // until it ends
		s.logs <- first + string(rest)
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

// ok is run, for a command that succeeds.
func ok(t *testing.T, env string, args ...string) string {
	t.Helper()
	code, out := run(t, env, args...)
	if code != 0 {
		t.Fatalf("sema %v: exit code %d: %s", args, code, out)
	}
	return out
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
		if out := ok(t, env, "show", "x"); !strings.Contains(out, permit) {
			t.Errorf("%s is not in\n%s", permit, out)
		}
		if out := ok(t, "SEMA_URL="+url, "show", "x"); !strings.Contains(out, "used 1") {
			t.Errorf("%s", out)
		}
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
		if log := s.end(); !strings.Contains(log, "msg=stopped") {
			t.Errorf("%s", log)
		}
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
	text := get(t, s.url+"/metrics")
	for _, want := range []string{
		`sema_server_requests_total{route="GET /v1/engine/calls",code="1xx"} 1`, "sema_server_call_duration_seconds_count ", "sema_server_connections ",
		"go_goroutines ", "process_start_time_seconds ", "sema_engine_up 1",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	if text := get(t, "http://"+profiles+"/debug/pprof/goroutine?debug=1"); !strings.Contains(text, "goroutine profile:") {
		t.Error(text)
	}
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
	if log := s.end(); !strings.Contains(log, `path=/metrics route="GET /metrics" status=200`) || !strings.Contains(log, "url=http://"+profiles+"/debug/pprof/") {
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
	cert, key, tokens := filepath.Join(dir, "cert"), filepath.Join(dir, "key"), filepath.Join(dir, "tokens")
	certificate(t, cert, key)
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
	if out := ok(t, env, "run", "-n", "1", "job-1", "--", "sema", "ls"); !strings.Contains(out, "job-1 ") {
		t.Errorf("%q", out)
	}
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
	t.Setenv("SEMA_SERVER_TOKEN", "boss.hush-hush-hush-boss")
	ok(t, env, "limit", "job-1", "3")
	if log := s.end(); strings.Contains(log, "hush") || !strings.Contains(log, "who=boss") {
		t.Errorf("%s", log)
	}
}

// certificate writes one for 127.0.0.1, signed by itself.
func certificate(t *testing.T, cert, key string) {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	expect.OK(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "sema test"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &k.PublicKey, k)
	expect.OK(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(k)
	expect.OK(t, err)
	expect.OK(t, os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	expect.OK(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
}

func TestServeRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	bad := filepath.Join(dir, "tokens")
	expect.OK(t, os.WriteFile(bad, []byte("ci use * short\n"), 0o600))
	for want, args := range map[string][]string{
		"lets other hosts in, so a token file is needed": {"--listen", ":0"},
		"--listen 10.0.0.1:1 lets other hosts in":        {"--listen", "10.0.0.1:1"},
		"want HOST:PORT": {"--listen", "localhost"},
		"--tls-cert and --tls-key belong together":                  {"--tls-cert", "x"},
		"certificate: open nobody":                                  {"--tls-cert", "nobody", "--tls-key", "nobody"},
		"token file: open nobody":                                   {"--token-file", "nobody"},
		"token file, line 1: the secret is too short":               {"--token-file", bad},
		"--profile 0.0.0.0:6060: want an address of this host only": {"--profile", "0.0.0.0:6060"},
		"--profile 6060: want an address":                           {"--profile", "6060"},
		"audit log: open ":                                          {"--audit", filepath.Join(dir, "no", "dir")},
		"the URL nonsense is of no known kind":                      {"--url", "nonsense"},
		"want sema serve without arguments":                         {"x"},
	} {
		code, out := run(t, "SEMA_URL="+fileURL(t), append([]string{"serve"}, args...)...)
		if code != 64 || !strings.Contains(out, want) {
			t.Errorf("%v: exit code %d: %s; want %q", args, code, out, want)
		}
	}
}
