//go:build unix

package sema_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"sema/lab/checkout"
	"sema/lab/expect"
	"sema/lab/redistest"
)

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
	sema := checkout.Copy(t, ".", "sema")
	programs, scripts := fenced(t, "README.md", "go"), fenced(t, "README.md", "sh")
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
	if module, err := exec.Command("go", "list", "-m").Output(); err != nil {
		t.Fatal(err)
	} else if at := strings.TrimSpace(string(module)); at != "sema" { // it has a home, and is taken from here all the same
		scripts[0] = strings.Replace(scripts[0], "go mod tidy", "go mod edit -require "+at+"@v0.0.0 -replace "+at+"=../sema\ngo mod tidy", 1)
	}
	if out := run(scripts[0]); !strings.HasSuffix(out, " working\n") {
		t.Errorf("the program printed\n%s", out)
	}
	server.Kill()
	if out := run("go run ."); !strings.Contains(out, " Redis is away: ") {
		t.Errorf("without a server the program printed\n%s", out)
	}
}

// The README's lines for a shell run as they stand there, but for the addresses, and for
// the place of the first semaphore, which is a directory of the test.
func TestReadmeShell(t *testing.T) {
	sema := checkout.Copy(t, ".", "sema")
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, "downloaded") }))
	defer site.Close()
	server, listen := redistest.Start(t), "127.0.0.1:"+strconv.Itoa(redistest.FreePort(t))
	script := strings.NewReplacer("https://example.org", site.URL, "127.0.0.1:6379", server.Addr(), "127.0.0.1:7362", listen).
		Replace(fenced(t, "README.md", "sh")[1])
	files := "SEMA_URL=file://" + t.TempDir()
	demo, out := shell(t, sema, "make demo", files)
	if err := demo.Wait(); err != nil || !strings.Contains(out.String(), "job 8 is done") {
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
	if out, err := exec.Command("go", "build", "-o", bin, "./cmd/sema").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for page, prints := range map[string][]string{
		"docs/limits.md": {"db: limit 10, 2 per key (pinned), paused"},
		"docs/shares.md": {
			"\napi: limit 20, 2 per key (pinned), used 0, free 20, waiting 0\n", "\nacme  0     5    300    0        -        \n",
			"nothing: a permit of weight 1 is free now",
		},
	} {
		cmd, out := shell(t, bin, fenced(t, page, "sh")[0], "PATH="+bin+":"+os.Getenv("PATH"), "SEMA_URL=file://"+t.TempDir())
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

// The way to hash a key that docs/shares.md shows is that of an example, which runs.
func TestPageOfShares(t *testing.T) {
	examples, err := os.ReadFile("example_keys_test.go")
	expect.OK(t, err)
	programs := fenced(t, "docs/shares.md", "go")
	if hash := programs[len(programs)-1]; !strings.Contains(string(examples), hash) {
		t.Errorf("example_keys_test.go has not\n%s", hash)
	}
}

// Each figure of the README stands in docs/bench.md, which is made.
func TestReadmeFigures(t *testing.T) {
	bench, err := os.ReadFile("docs/bench.md")
	expect.OK(t, err)
	readme, err := os.ReadFile("README.md")
	expect.OK(t, err)
	for _, f := range []struct{ row, scenario, column string }{
		{"512 callers share 8 permits, 10 ms of work each: longest wait", "512-of-8-hold-10ms", "longest wait"},
		{"the same: of the rate that is possible", "512-of-8-hold-10ms", "of possible"},
		{"one caller alone, nobody waits: p50 of an acquire", "uncontended", "p50 wait"},
	} {
		_, section, _ := strings.Cut(string(bench), "(`"+f.scenario+"`)\n")
		of := func(who string) string {
			columns := []string{}
			for line := range strings.Lines(section) {
				cells := strings.Split(strings.Trim(line, "|\n"), "|")
				for i := range cells {
					cells[i] = strings.TrimSpace(cells[i])
				}
				if strings.Contains(line, f.column) && len(columns) == 0 {
					columns = cells
				}
				if cells[0] == "`"+who+"`" {
					for i, c := range columns {
						if c == f.column {
							figure, _, _ := strings.Cut(strings.Trim(cells[i], "*"), " (")
							return figure
						}
					}
				}
			}
			return "nothing"
		}
		if want := "| " + f.row + " | " + of("sema") + " | " + of("redisson-semaphore") + " |\n"; !strings.Contains(string(readme), want) {
			t.Errorf("README.md lacks what docs/bench.md says:\n%s", want)
		}
	}
}

// What pages link to is there, and so are the targets of make that README.md names.
func TestLinks(t *testing.T) {
	pages, err := filepath.Glob("docs/*.md")
	expect.OK(t, err)
	makefile, err := os.ReadFile("Makefile")
	expect.OK(t, err)
	link := regexp.MustCompile(`(?:\]\(|src="|srcset=")([^)"#: ]*)(#[^)" ]*)?[)"]`)
	for _, page := range append(pages, "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "CODE_OF_CONDUCT.md") {
		text, err := os.ReadFile(page)
		expect.OK(t, err)
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			to := filepath.Join(filepath.Dir(page), m[1])
			if m[1] == "" {
				to = page
			}
			if there, err := os.ReadFile(to); err != nil && !errors.Is(err, syscall.EISDIR) {
				t.Errorf("%s links to %s: %v", page, m[1], err)
			} else if m[2] != "" && !slices.Contains(anchors(string(there)), m[2]) {
				t.Errorf("%s links to %s%s, and there is no such heading", page, m[1], m[2])
			}
		}
		if page != "README.md" {
			continue
		}
		for _, m := range regexp.MustCompile("`make ([a-z -]+)`").FindAllSubmatch(text, -1) {
			for target := range strings.FieldsSeq(string(m[1])) {
				if !bytes.Contains(makefile, []byte("\n"+target+":")) {
					t.Errorf("%s names make %s, and the Makefile has none", page, target)
				}
			}
		}
	}
}

// A page says below its title for whom it is, and then in short what to do.
func TestPages(t *testing.T) {
	pages, err := filepath.Glob("docs/*.md")
	expect.OK(t, err)
	head := regexp.MustCompile(`^(<!-- .* -->\n)?# .+\n\nFor [^|]*?\*\*In short:\*\*`)
	for _, page := range pages {
		text, err := os.ReadFile(page)
		expect.OK(t, err)
		if at := head.FindIndex(text); at == nil || at[1] > 600 {
			t.Errorf("%s does not begin with whom it is for, and what to do in short", page)
		}
	}
}

// anchors are what headings of a page can be linked as.
func anchors(page string) (all []string) {
	for _, m := range regexp.MustCompile("(?m)^#+ (.*)$").FindAllStringSubmatch(page, -1) {
		anchor := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		all = append(all, "#"+strings.ReplaceAll(anchor, " ", "-"))
	}
	return all
}

// The changelog has the headings of keepachangelog.com, and says of each line whom it is for.
func TestChangelog(t *testing.T) {
	text, err := os.ReadFile("CHANGELOG.md")
	expect.OK(t, err)
	form := regexp.MustCompile(`^(# Changelog|## Unreleased|## \d+\.\d+\.\d+( - \d{4}-\d\d-\d\d)?|### (Added|Changed|Deprecated|Removed|Fixed|Security)|- For .*|[^#-].*|)\n$`)
	for line := range strings.Lines(string(text)) {
		if !form.MatchString(line) {
			t.Errorf("CHANGELOG.md: %q is not in the form that CONTRIBUTING.md says", line)
		}
	}
}
