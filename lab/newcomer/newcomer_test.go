//go:build unix

// Package newcomer does what the README and its pages tell a new user to do, in a copy of the source.
package newcomer

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
	"sema/lab/checkout"
)

// root is that of the repository, where README.md is.
const root = "../../"

// fenced are the blocks of code of a page in a language.
func fenced(t *testing.T, page, language string) []string {
	t.Helper()
	text, err := os.ReadFile(page)
	expect.OK(t, err)
	var blocks []string
	for _, b := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllSubmatch(text, -1) {
		blocks = append(blocks, string(b[1]))
	}
	return blocks
}

// shell is a script in a directory, with these variables beside those of the test.
// It is ended with the test, and so is all that it has started.
func shell(t *testing.T, dir, script string, env ...string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	cmd := exec.Command("bash", "-euc", script)
	var out bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &out
	cmd.Env = append(os.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	expect.OK(t, cmd.Start())
	t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	return cmd, &out
}

// The README's program compiles and runs as it stands there, in a module made by
// the lines that stand beside it.
func TestReadmeProgram(t *testing.T) {
	sema := checkout.Copy(t, root, "sema")
	programs, scripts := fenced(t, root+"README.md", "go"), fenced(t, root+"README.md", "sh")
	if len(programs) != 1 || len(scripts) != 2 {
		t.Fatalf("README.md has %d programs and %d scripts", len(programs), len(scripts))
	}
	hello := filepath.Join(filepath.Dir(sema), "hello")
	expect.OK(t, os.Mkdir(hello, 0o777))
	expect.OK(t, os.WriteFile(filepath.Join(hello, "main.go"), []byte(programs[0]), 0o666))

	server := redistest.Start(t)
	run := func(script string) string {
		cmd, out := shell(t, hello, script, "REDIS="+server.Addr())
		if err := cmd.Wait(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return out.String()
	}
	if module, err := exec.Command("go", "-C", root, "list", "-m").Output(); err != nil {
		t.Fatal(err)
	} else if at := strings.TrimSpace(string(module)); at != "sema" { // it has a home, and is taken from here all the same
		scripts[0] = strings.Replace(scripts[0], "go mod tidy", "go mod edit -require "+at+"@v0.0.0 -replace "+at+"=../sema\ngo mod tidy", 1)
	}
	if out := run(scripts[0]); !regexp.MustCompile(` working\n.* done: <nil>\n$`).MatchString(out) {
		t.Errorf("the program printed\n%s", out)
	}
	server.Kill()
	if out := run("go run ."); !strings.Contains(out, " done: sema: ") || !strings.Contains(out, server.Addr()) {
		t.Errorf("without a server the program printed\n%s", out)
	}
}

// The README's lines for a shell run as they stand there, but for the addresses, and for
// the place of the first semaphore, which is a directory of the test.
func TestReadmeShell(t *testing.T) {
	sema := checkout.Copy(t, root, "sema")
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, "downloaded") }))
	defer site.Close()
	server, listen := redistest.Start(t), "127.0.0.1:"+strconv.Itoa(redistest.FreePort(t))
	script := strings.NewReplacer("https://example.org", site.URL, "127.0.0.1:6379", server.Addr(), "127.0.0.1:7362", listen).
		Replace(fenced(t, root+"README.md", "sh")[1])
	files := "SEMA_URL=file://" + t.TempDir()
	demo, out := shell(t, sema, "make demo", files)
	// The last command of the demo says who holds and waits after job-1 was killed.
	if err := demo.Wait(); err != nil || !regexp.MustCompile(`(?s)# what a newcomer would wait for\n.*\nholds .* job-2\nholds .* job-3\nwaits .* job-4\n`).MatchString(out.String()) {
		t.Errorf("make demo: %v\n%s", err, out)
	}
	cmd, out := shell(t, sema, script, files)
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for up := false; !up; {
		select {
		case err := <-ended:
			t.Fatalf("%v\n%s", err, out)
		case <-time.After(50 * time.Millisecond):
			r, err := http.Get("http://" + listen + "/readyz")
			up = err == nil && r.StatusCode == http.StatusOK
			if err == nil {
				_ = r.Body.Close()
			}
		}
	}
	if got, err := os.ReadFile(filepath.Join(sema, "file")); err != nil || string(got) != "downloaded" {
		t.Errorf("downloaded %q, %v", got, err)
	}
	expect.OK(t, cmd.Process.Signal(syscall.SIGTERM))
	<-ended
	if want := "downloads: limit 3, used 0, free 3, waiting 0\n"; !strings.Contains(out.String(), want) {
		t.Errorf("the output lacks %q:\n%s", want, out)
	}
}

// Lines for a shell run as they stand on the pages.
func TestPagesShell(t *testing.T) {
	bin := t.TempDir()
	if out, err := exec.Command("go", "-C", root, "build", "-o", bin, "./cmd/sema").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for page, prints := range map[string][]string{
		"docs/limits.md": {"db: limit 10, caps 4,2 (pinned), paused"},
		"docs/shares.md": {
			"\nllm: limit 200, caps 20,4 (pinned), used 0, free 200, waiting 0\n", "\nbeta  0     50   300    0        -        \n",
			"nothing: a permit of weight 1 is free now",
		},
	} {
		cmd, out := shell(t, bin, fenced(t, root+page, "sh")[0], "PATH="+bin+":"+os.Getenv("PATH"), "SEMA_URL=file://"+t.TempDir())
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v\n%s", page, err, out)
		}
		for _, want := range prints {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s: the output lacks %q:\n%s", page, want, out)
			}
		}
	}
}
