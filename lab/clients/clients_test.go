//go:build unix

// Package clients has the clients of the server for other languages, a package of
// their ecosystem each: python and js. The tests here start real servers over a real
// Redis and run the clients' own tests, type checks aside, which make types has.
package clients

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
)

// packages is where the clients are.
const packages = "../../clients"

// ground is what the clients' tests need: the program, and a Redis.
func ground(t *testing.T) (env []string) {
	t.Helper()
	if testing.Short() {
		t.Skip("it needs servers and processes")
	}
	program := filepath.Join(t.TempDir(), "sema")
	run(t, nil, "go", "-C", "../cmd/sema", "build", "-o", program, ".")
	return []string{"SEMA_BIN=" + program, "SEMA_ENGINE=" + redistest.Start(t).URL(), "PYTHONDONTWRITEBYTECODE=1", "PYTHONPATH=python/src"}
}

// run runs a program to its end, which must be success.
func run(t *testing.T, env []string, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = packages, append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// python is one that has aiohttp: the first in the path, or Debian's.
func python(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"python3", "/usr/bin/python3"} {
		if exec.Command(name, "-c", "import aiohttp").Run() == nil {
			return name
		}
	}
	t.Fatal("no Python with aiohttp: apt-get install python3-aiohttp")
	return ""
}

func TestPython(t *testing.T) {
	env := ground(t)
	t.Log(run(t, env, python(t), "-W", "error", "-m", "unittest", "discover", "-v", "-s", "python/tests"))
}

func TestJavaScript(t *testing.T) {
	env := ground(t)
	t.Log(run(t, env, "node", "--test", "js/test/"))
}

// The programs that the READMEs show run, and print what they say.
func TestReadmes(t *testing.T) {
	env := ground(t)
	program, _ := strings.CutPrefix(env[0], "SEMA_BIN=")
	url, _ := strings.CutPrefix(env[1], "SEMA_ENGINE=")
	serve := exec.Command(program, "serve", "--url", url, "--listen", "127.0.0.1:0")
	log, err := serve.StderrPipe()
	expect.OK(t, err)
	expect.OK(t, serve.Start())
	t.Cleanup(func() { _, _ = serve.Process.Kill(), serve.Wait() })
	for in := bufio.NewScanner(log); in.Scan(); {
		if at := regexp.MustCompile(`url=(http://\S+)`).FindStringSubmatch(in.Text()); at != nil {
			env = append(env, "SEMA_URL="+at[1])
			break
		}
	}
	for _, readme := range []struct{ path, language, program, flag, want string }{
		{"python/README.md", "python", python(t), "-c", "full: "},
		{"python/README.md", "python", python(t), "-c", "held with token"},
		{"js/README.md", "js", "node", "--input-type=module", "full: "},
	} {
		text, err := os.ReadFile(filepath.Join(packages, readme.path))
		expect.OK(t, err)
		found := false
		for _, block := range regexp.MustCompile("(?s)```"+readme.language+"\n(.*?)```").FindAllSubmatch(text, -1) {
			if !strings.Contains(string(block[1]), strings.TrimSuffix(readme.want, " ")) {
				continue
			}
			found = true
			args := []string{readme.flag, string(block[1])}
			if readme.flag == "--input-type=module" {
				args = []string{readme.flag, "-e", strings.Replace(string(block[1]), `"sema-client"`, `"./js/index.js"`, 1)}
			}
			if out := run(t, env, readme.program, args...); !strings.Contains(out, readme.want) {
				t.Errorf("%s: the output lacks %q:\n%s", readme.path, readme.want, out)
			}
		}
		if !found {
			t.Errorf("%s: no block has %q", readme.path, readme.want)
		}
	}
}
