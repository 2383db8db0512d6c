package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sema/internal/fixture/expect"
	"sema/lab/checkout"
)

// at is where the module is at home in the tests. go asks git for a path that ends so
// without looking whether the host is there, and git has the repository from a directory.
const at = "example.org/you/sema.git"

// run runs a command to its end, which must be success.
func run(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// A copy that was given a home, and then another, has all that it imports, and package sema
// compiles. Others get what was tagged there, without replacements. With SEMA_HOME_ALL, which
// is make home-all, all is read, built and tested: minutes, because no path is as before.
func TestHome(t *testing.T) {
	all := os.Getenv("SEMA_HOME_ALL") != ""
	sema := checkout.Copy(t, "../..", "sema")
	run(t, sema, nil, "make", "home", "MODULE=example.org/first")
	run(t, sema, nil, "make", "home", "MODULE="+at, "VERSION=v0.3.0")
	if all {
		run(t, sema, []string{"SEMA_HOME_ALL="}, "make", "lint", "test") // or the copy would make a copy, for ever
	} else {
		run(t, sema, nil, "go", "list", "-deps", "-test", "./...") // finds each import, and compiles nothing
		run(t, sema, nil, "go", "build", "./sematest")
	}
	modules, err := filepath.Glob(filepath.Join(sema, "contrib/*/go.mod"))
	expect.OK(t, err)
	for _, m := range modules {
		run(t, filepath.Dir(m), nil, "go", "list", "-deps", "-test", "./...")
	}

	git := func(args ...string) {
		t.Helper()
		run(t, sema, nil, "git", append([]string{"-c", "user.name=test", "-c", "user.email=test@example.org"}, args...)...)
	}
	git("init", "-q")
	git("add", "-A")
	git("commit", "-q", "-m", "A home")
	git("tag", "v0.3.0")
	git("tag", "contrib/grpc/v0.3.0")
	user := t.TempDir()
	main := "package main\n\nimport (\n\t\"" + at + "\"\n\tsemagrpc \"" + at + "/contrib/grpc\"\n)\n\nfunc main() {\n\tvar l semagrpc.Limit\n\tprintln(sema.MaxLimit, l.Weight == nil)\n}\n"
	expect.OK(t, os.WriteFile(filepath.Join(user, "main.go"), []byte(main), 0o666))
	cache := strings.TrimSpace(run(t, user, nil, "go", "env", "GOMODCACHE"))
	proxy := strings.TrimSpace(run(t, user, nil, "go", "env", "GOPROXY"))
	env := []string{
		// What was fetched before need not be fetched again, and what is fetched now must not stay.
		"GOMODCACHE=" + t.TempDir(), "GOPROXY=file://" + filepath.ToSlash(cache) + "/cache/download," + proxy,
		"GOPRIVATE=example.org", "GOFLAGS=-modcacherw -trimpath",
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=url." + sema + "/.git.insteadOf", "GIT_CONFIG_VALUE_0=https://" + strings.TrimSuffix(at, ".git"),
	}
	run(t, user, env, "go", "mod", "init", "example.org/user")
	run(t, user, env, "go", "get", at+"/contrib/grpc@v0.3.0")
	run(t, user, env, "go", "mod", "tidy")
	run(t, user, env, "go", "list", "-deps", ".")
	if all {
		run(t, user, env, "go", "run", ".")
	}
}

// A path that nobody could get is refused, and nothing is changed.
func TestRefused(t *testing.T) {
	for _, path := range []string{"", "sema", "you/sema", "example.org/a b", "example.org/sema/"} {
		dir := t.TempDir()
		file := filepath.Join(dir, "go.mod")
		expect.OK(t, os.WriteFile(file, []byte("module sema\n"), 0o666))
		m := mover{dir: dir, to: path, version: "v0.1.0"}
		if err := m.move(); err == nil {
			t.Errorf("%q was taken", path)
		}
		if now, err := os.ReadFile(file); err != nil || string(now) != "module sema\n" {
			t.Errorf("%q: go.mod became %q, %v", path, now, err)
		}
	}
}
