package sema_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sema/internal/fixture/expect"
)

// What may import what. Imports point one way: cmd → cli → engines → sema →
// standard library, so that a library user pays for go-redis at most, and only
// with the engine that needs it.
var importRules = []struct {
	packages string   // path, or path/... for all below
	may      []string // beside the standard library; the same notation
	why      string
}{
	{"sema/internal/enum", nil, "names of values"},
	{"sema/internal/class", nil, "errors know nobody"},
	{"sema/engine", []string{"sema/internal/class"}, "what all engines show costs its readers nothing"},
	{"sema/internal/protocol", []string{"sema/engine", "sema/internal/enum"}, "what both sides say knows neither side"},
	{"sema", []string{"sema/engine", "sema/internal/adapt", "sema/internal/class", "sema/internal/client", "sema/internal/enum", "sema/internal/loop", "sema/internal/once", "sema/internal/protocol", "sema/internal/watchdog"}, "the root costs its users nothing"},
	{"sema/each", []string{"sema", "sema/engine", "sema/internal/watchdog"}, "many semaphores cost no more than one"},
	{"sema/internal/loop", []string{"sema/engine", "sema/internal/client", "sema/internal/protocol", "sema/internal/watchdog"}, "it drives a machine, over any engine"},
	{"sema/internal/client", []string{"sema/engine", "sema/internal/enum", "sema/internal/protocol"}, "a machine knows no clock, no lock and no engine"},
	{"sema/internal/pack", []string{"sema/engine"}, "bytes of what engines keep"},
	{"sema/internal/ledger", []string{"sema/engine", "sema/internal/pack", "sema/internal/protocol"}, "a machine knows no clock, no lock and no client"},
	{"sema/engines/memengine", []string{"sema/engine", "sema/internal/ledger", "sema/internal/protocol"}, "memory needs nothing"},
	{"sema/engines/fileengine", []string{"sema/engine", "sema/internal/ledger", "sema/internal/pack", "sema/internal/protocol", "golang.org/x/sys/unix", "golang.org/x/sys/windows"}, "what the kernel knows is asked of the kernel"},
	{"sema/engines/register", []string{"sema/engine", "sema/internal/ledger", "sema/internal/pack", "sema/internal/wire", "sema/internal/protocol"}, "a store's author brings the store's client, and nothing else"},
	{"sema/engines/pgengine", []string{"sema", "sema/engine", "sema/engines/register", "github.com/jackc/pgx/v5", "github.com/jackc/pgx/v5/pgconn", "github.com/jackc/pgx/v5/pgxpool", "github.com/jackc/pgx/v5/stdlib"}, "only programs with PostgreSQL need its client"},
	{"sema/engines/redisengine", []string{"sema/engine", "sema/internal/ledger", "sema/internal/rediserror", "sema/internal/redissub", "sema/internal/protocol", "github.com/redis/go-redis/v9"}, "go-redis is the one dependency of users"},
	{"sema/engines/httpengine", []string{"sema/engine", "sema/internal/wire", "sema/internal/protocol"}, "a client of the server needs no store's client"},
	{"sema/internal/wire", []string{"sema/engine", "sema/internal/protocol"}, "bytes of what both sides say"},
	{"sema/access", []string{"sema/engine"}, "plain types"},
	{"sema/internal/rights", []string{"sema", "sema/access"}, "whoever shows or serves semaphores says the same of rights"},
	{"sema/server", []string{"sema", "sema/access", "sema/engine", "sema/internal/rights", "sema/internal/client", "sema/internal/loop", "sema/internal/once", "sema/internal/view", "sema/internal/wire", "sema/metrics", "sema/watch", "sema/internal/protocol"}, "it serves any engine, and knows of none"},
	{"sema/admit", []string{"sema", "sema/each", "sema/engine", "sema/internal/class", "sema/internal/watchdog"}, "it admits requests, calls and jobs of whatever kind, by any engine"},
	{"sema/semahttp", []string{"sema", "sema/admit", "sema/each", "sema/engine", "sema/internal/once"}, "it limits requests by any engine, and so needs none"},
	{"sema/enginetest", []string{"sema", "sema/engine", "sema/internal/fixture/child", "sema/internal/fixture/expect", "sema/internal/fixture/history", "sema/internal/fixture/stall", "sema/internal/protocol", "go.uber.org/goleak"}, "a third engine's tests import it"},
	{"sema/watch", []string{"sema/engine", "sema/internal/protocol"}, "who looks from outside needs no client, and no engine of any kind"},
	{"sema/internal/history", []string{"sema/access", "sema/engine", "sema/watch"}, "it keeps what a watch sees, over any engine"},
	{"sema/dashboard", []string{"sema", "sema/access", "sema/engine", "sema/internal/rights", "sema/internal/history", "sema/internal/once", "sema/watch", "sema/internal/view", "sema/internal/protocol"}, "who shows it in a server of his own gets no other dependency"},
	{"sema/internal/once", nil, "it is sync.Once but for one thing"},
	{"sema/internal/view", []string{"sema/access", "sema/engine", "sema/internal/ledger", "sema/watch"}, "one JSON, and the same words, for all who show a semaphore"},
	{"sema/sematest", []string{"sema", "sema/engine", "sema/internal/once", "sema/engines/memengine", "sema/internal/protocol"}, "users' tests import it: it costs them what their program has anyway"},
	{"sema/classic", []string{"sema/engine", "sema/internal/rediserror", "github.com/redis/go-redis/v9"}, "the originals stand alone, but for the words of errors"},
	{"sema/redisson", []string{"sema/engine", "sema/internal/once", "sema/internal/rediserror", "sema/internal/redissub", "github.com/redis/go-redis/v9"}, "the originals stand alone, but for the words of errors and the subscriptions"},
	{"sema/metrics", []string{"sema", "sema/engine", "sema/watch"}, "counting costs a program no module; clients of Prometheus and OpenTelemetry are for contrib"},
	{"sema/internal/rediserror", []string{"github.com/redis/go-redis/v9"}, "one table for all who talk to Redis"},
	{"sema/internal/redissub", []string{"sema/internal/rediserror", "github.com/redis/go-redis/v9"}, "one listener for all who wait at a Redis"},
	{"sema/internal/adapt", []string{"sema/engine", "sema/internal/protocol"}, "it knows no lock and no engine"},
	{"sema/internal/fixture/local", []string{"sema/internal/fixture/child", "github.com/redis/go-redis/v9"}, "servers for examples and tests know no semaphore"},
	{"sema/internal/fixture/redistest", []string{"sema/internal/fixture/child", "github.com/redis/go-redis/v9"}, "test fixtures know no semaphore"},
	{"sema/internal/fixture/history", []string{"golang.org/x/sys/unix"}, "the judge knows nothing of whom it judges"},
	{"sema/internal/fixture/child", []string{"sema/internal/fixture/expect"}, "processes are anybody's"},
	{"sema/internal/fixture/expect", nil, "every test may import it"},
	{"sema/internal/fixture/opened", []string{"sema", "sema/engine", "sema/internal/fixture/expect", "sema/internal/protocol"}, "it opens what tests use, over any engine"},
	{"sema/internal/fixture/stall", []string{"sema/internal/watchdog"}, "every test may import it"},
	{"sema/internal/watchdog", nil, "it looks at the clock alone"},
	{"sema/cmd/sema/internal/guard", []string{"sema/cmd/sema/internal/early", "golang.org/x/sys/unix", "golang.org/x/term"}, "what watches over a command knows no semaphore"},
	{"sema/cmd/sema/internal/early", nil, "it has to be initialised before syscall"},
	{"sema/cmd/sema", []string{"sema/cmd/sema/internal/cli"}, "main is a few lines"},
}

func TestImportsPointOneWay(t *testing.T) {
	var out []byte
	for _, dir := range []string{".", "cmd/sema", "engines/pgengine"} { // modules of their own, so that nobody requires what only they need
		list, err := exec.Command("go", "-C", dir, "list", "-f", "{{.ImportPath}} {{join .Imports \" \"}}", "./...").CombinedOutput()
		if err != nil {
			t.Fatalf("go list in %s: %v\n%s", dir, err, list)
		}
		out = append(out, list...)
	}
	// A package is called sema or sema/... here, wherever the module is at home.
	const home = "sema/"
	at := module(t)
	called := func(path string) string {
		if below, ok := strings.CutPrefix(path+"/", at+"/"); ok {
			path = strings.TrimSuffix(home+below, "/")
		}
		return path
	}
	imports := map[string][]string{}
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		for i := range words {
			words[i] = called(words[i])
		}
		imports[words[0]] = words[1:]
	}
	for _, rule := range importRules {
		rule.packages = called(rule.packages)
		if _, ok := imports[rule.packages]; !ok {
			t.Errorf("no package %s: the rule is out of date", rule.packages)
		}
		for _, imported := range imports[rule.packages] {
			if !strings.Contains(imported, ".") && !strings.HasPrefix(imported+"/", home) {
				continue // standard library
			}
			allowed := false
			for _, a := range rule.may {
				allowed = allowed || imported == called(a)
			}
			if !allowed {
				t.Errorf("%s imports %s: %s", rule.packages, imported, rule.why)
			}
		}
	}
	laboratory := regexp.MustCompile(`^sema/(internal/fixture/|enginetest$)`)
	for name, list := range imports {
		for _, imported := range list {
			if strings.HasPrefix(imported, home+"internal/fixture/") && !laboratory.MatchString(name) {
				t.Errorf("%s imports %s: what tests are made of is no part of the product", name, imported)
			}
		}
	}
}

// module is the path of this module, wherever it is at home.
func module(t *testing.T) string {
	t.Helper()
	path, err := exec.Command("go", "list", "-m").Output()
	expect.OK(t, err)
	return strings.TrimSpace(string(path))
}

// Programs of users have a release of a module below contrib beside another release of this one. So the
// modules and their tests import nothing that is internal here, and a program outside of this repository
// compiles with no more than what their go.mod files name.
func TestContribNeedsWhatIsPublic(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds programs")
	}
	root, err := os.Getwd()
	expect.OK(t, err)
	at := module(t)
	run := func(dir string, words ...string) string {
		t.Helper()
		cmd := exec.Command(words[0], words[1:]...)
		cmd.Dir = dir
		said, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v in %s: %v\n%s", words, dir, err, said)
		}
		return string(said)
	}
	uses := map[string]string{
		"asynq":      "used.New(used.Limit{Semaphore: sem})",
		"grpc":       "used.New(used.Limit{Semaphore: sem, Outage: admit.Local(5, 1)})",
		"otel":       "used.New(nil)",
		"prometheus": "used.Collector(metrics.Process()), 0",
		"river":      "used.New(used.Limit{Semaphore: sem})",
	}
	replaced := "replace " + at + " => " + root + "\n"
	for name := range uses {
		replaced += "replace " + at + "/contrib/" + name + " => " + filepath.Join(root, "contrib", name) + "\n"
	}
	modules, err := filepath.Glob("contrib/*/go.mod")
	expect.OK(t, err)
	if len(modules) != len(uses) {
		t.Errorf("%d modules below contrib, and %d programs", len(modules), len(uses))
	}
	for name, use := range uses {
		dir, path := filepath.Join(root, "contrib", name), at+"/contrib/"+name
		for _, imported := range strings.Fields(run(dir, "go", "list", "-f", `{{join .Imports " "}} {{join .TestImports " "}} {{join .XTestImports " "}}`, "./...")) {
			if strings.HasPrefix(imported, at+"/") && strings.Contains(imported, "/internal/") {
				t.Errorf("%s imports %s", path, imported)
			}
		}
		user := t.TempDir()
		sums, err := os.ReadFile(filepath.Join(dir, "go.sum"))
		expect.OK(t, err)
		expect.OK(t, os.WriteFile(filepath.Join(user, "go.sum"), sums, 0o666))
		expect.OK(t, os.WriteFile(filepath.Join(user, "go.mod"), []byte("module example.org/user\n\ngo 1.26.0\n\nrequire "+at+" v0.0.0\nrequire "+path+" v0.0.0\n"+replaced), 0o666))
		expect.OK(t, os.WriteFile(filepath.Join(user, "main.go"), []byte(strings.ReplaceAll(`package main

import (
	"sema"
	"sema/admit"
	"sema/engines/memengine"
	"sema/metrics"
	used "sema/contrib/`+name+`"
)

var _, _ = admit.Open, metrics.Process

func main() {
	sem, _ := sema.New(memengine.New(), "x", 1, nil)
	_, _ = `+use+`
	_ = sem.Close()
}
`, `"sema`, `"`+at)), 0o666))
		run(user, "go", "build", "-mod=mod", "-o", os.DevNull, ".")
	}
}
