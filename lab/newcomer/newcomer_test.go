//go:build unix

// Package newcomer does what the README tells a new user to do, in a copy of the source.
package newcomer

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
)

// shell runs a script in a directory to its end, which must be success, and returns what it printed.
func shell(t *testing.T, dir, script string, env ...string) string {
	t.Helper()
	cmd := exec.Command("bash", "-euc", script)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// checkout is a copy of the source, and what README.md has fenced in it: lines of Go, the last of them a program, and lines for a shell.
func checkout(t *testing.T) (dir string, code, scripts []string) {
	if testing.Short() {
		t.Skip("it builds a copy of everything")
	}
	dir = filepath.Join(t.TempDir(), "sema")
	shell(t, "../..", "mkdir "+dir+"; git ls-files -z | tar -c --null --ignore-failed-read -T - | tar -x -C "+dir)
	text, err := os.ReadFile(filepath.Join(dir, "README.md"))
	expect.OK(t, err)
	for _, b := range regexp.MustCompile("(?s)```(go|sh)\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		if b[1] == "go" {
			code = append(code, b[2])
		} else {
			scripts = append(scripts, b[2])
		}
	}
	return dir, code, scripts
}

// The program runs in a module made by the lines beside it, also when its server is gone. The first lines of the page are its own.
func TestReadmeProgram(t *testing.T) {
	sema, code, scripts := checkout(t)
	lines, program := code[0], code[1]
	for line := range strings.Lines(lines) {
		expect.Has(t, program, line)
	}
	hello := filepath.Join(filepath.Dir(sema), "hello")
	expect.OK(t, os.Mkdir(hello, 0o777))
	expect.OK(t, os.WriteFile(filepath.Join(hello, "main.go"), []byte(program), 0o666))
	server := redistest.Start(t)
	if out := shell(t, hello, strings.ReplaceAll(scripts[1], "127.0.0.1:6379", server.Addr())); !strings.HasSuffix(out, " working\n") {
		t.Errorf("the program printed\n%s", out)
	}
	server.Kill()
	expect.Has(t, shell(t, hello, "! go run .", "REDIS="+server.Addr()), " sema: acquire ")
}

// The lines for a shell run as they stand there but for addresses; the last one serves, and make demo shows who is next.
func TestReadmeShell(t *testing.T) {
	sema, _, scripts := checkout(t)
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, "downloaded") }))
	defer site.Close()
	script := strings.NewReplacer("https://example.org", site.URL, "127.0.0.1:6379", redistest.Start(t).Addr(), "bin/sema serve --listen 127.0.0.1:7362", "timeout --preserve-status 5 bin/sema serve --listen 127.0.0.1:0").Replace(scripts[0])
	out := shell(t, sema, script+"cat file; make demo", "SEMA_URL=file://"+t.TempDir())
	if !regexp.MustCompile(`(?s)downloads: limit 3, used 0, free 3, waiting 0\n.* msg=serving .*downloaded.*\nholds .* job-2\nholds .* job-3\nwaits .* job-4\n`).MatchString(out) {
		t.Errorf("they printed\n%s", out)
	}
}

// A copy that was given a home, and then another, has all that it imports. From a proxy on the disk, the program installs by its
// version alone, and a program of a user compiles.
func TestHome(t *testing.T) {
	sema, _, _ := checkout(t)
	proxy := t.TempDir()
	shell(t, sema, `git init -q; git add -A
		make home MODULE=example.org/first
		TAG=1 make home MODULE=example.org/you/sema.git VERSION=v0.3.0
		git add -A; git -c user.name=x -c user.email=x@example.org commit -qm x
		nested=$(git ls-files '*/go.mod' | xargs -n1 dirname)
		for m in . engines/pgengine cmd/sema contrib/asynq; do
			path=example.org/you/sema.git$([ $m = . ] || echo /$m); to=$PROXY/$path/@v; mkdir -p $to
			cp $m/go.mod $to/v0.3.0.mod; echo '{"Version":"v0.3.0"}' >$to/v0.3.0.info; echo v0.3.0 >$to/list
			git -C $m archive --format=zip --prefix=$path@v0.3.0/ -o $to/v0.3.0.zip HEAD . $([ $m != . ] || printf ':!%s ' $nested)
		done
		export GOPROXY=file://$PROXY,file://$(go env GOMODCACHE)/cache/download,$(go env GOPROXY) GONOSUMDB=example.org GOFLAGS=-mod=mod GOMODCACHE=$PROXY/mod GOBIN=$PROXY/bin
		go install example.org/you/sema.git/cmd/sema@v0.3.0
		$PROXY/bin/sema version | grep v0.3.0
		mkdir $PROXY/user; cd $PROXY/user
		printf 'package main\n\nimport (\n\t_ "example.org/you/sema.git"\n\t_ "example.org/you/sema.git/engines/redisengine"\n)\n\nfunc main() {}\n' >main.go
		go mod init example.org/hello; go get example.org/you/sema.git@v0.3.0; go mod tidy; go build .
		[ $(go list -m all | wc -l) -le 16 ] || { go list -m all; exit 1; }
		go get example.org/you/sema.git/contrib/asynq@v0.3.0
		go clean -modcache`, "PROXY="+proxy)
}
