package sema_test

import (
	"os/exec"
	"strings"
	"testing"
)

// What may import what. Imports point one way: cmd → cli → engines → sema →
// standard library, so that a library user pays for go-redis at most, and only
// with the engine that needs it.
var importRules = []struct {
	packages string   // path, or path/... for all below
	may      []string // beside the standard library; the same notation
	why      string
}{
	{"sema", nil, "the root costs its users nothing"},
	{"sema/internal/ledger", []string{"sema"}, "the state machine speaks the engine's words and knows nobody else"},
	{"sema/engine/memengine", []string{"sema", "sema/internal/ledger"}, "memory needs nothing"},
	{"sema/engine/fileengine", []string{"sema", "sema/internal/ledger", "github.com/gofrs/flock"}, "portable file locks are better bought"},
	{"sema/engine/redisengine", []string{"sema", "github.com/redis/go-redis/v9"}, "go-redis is the one dependency of users"},
	{"sema/engine/enginetest", []string{"sema", "go.uber.org/goleak"}, "a third engine's tests import it"},
	{"sema/classic", []string{"github.com/redis/go-redis/v9"}, "the originals stand alone"},
	{"sema/redisson", []string{"github.com/redis/go-redis/v9"}, "the originals stand alone"},
	{"sema/internal/redistest", []string{"github.com/redis/go-redis/v9"}, "test fixtures know no semaphore"},
	{"sema/internal/measure", []string{"github.com/HdrHistogram/hdrhistogram-go"}, "the stopwatch knows nothing of what it times"},
	{"sema/internal/bench", []string{"sema", "sema/internal/measure", "sema/engine/fileengine", "github.com/redis/go-redis/v9", "github.com/HdrHistogram/hdrhistogram-go", "golang.org/x/sys/unix"}, "it measures sema from outside, as its users would"},
	{"sema/internal/guard", []string{"sema/internal/early", "golang.org/x/sys/unix"}, "what watches over a command knows no semaphore"},
	{"sema/internal/early", nil, "it has to be initialised before syscall"},
	{"sema/cmd/sema", []string{"sema/internal/cli"}, "main is a few lines"},
}

func TestImportsPointOneWay(t *testing.T) {
	out, err := exec.Command("go", "list", "-f", "{{.ImportPath}} {{join .Imports \" \"}}", "./...").CombinedOutput()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, out)
	}
	imports := map[string][]string{}
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		imports[words[0]] = words[1:]
	}
	for _, rule := range importRules {
		if _, ok := imports[rule.packages]; !ok {
			t.Errorf("no package %s: the rule is out of date", rule.packages)
		}
		for _, imported := range imports[rule.packages] {
			if !strings.Contains(imported, ".") && !strings.HasPrefix(imported, "sema") {
				continue // standard library
			}
			allowed := false
			for _, a := range rule.may {
				allowed = allowed || imported == a
			}
			if !allowed {
				t.Errorf("%s imports %s: %s", rule.packages, imported, rule.why)
			}
		}
	}
	for name, list := range imports {
		if strings.HasPrefix(name, "sema/internal/cli") || strings.HasPrefix(name, "sema/cmd/") {
			continue
		}
		for _, imported := range list {
			if imported == "sema/internal/cli" || strings.HasPrefix(imported, "github.com/spf13/cobra") {
				t.Errorf("%s imports %s: the program is on top of everything", name, imported)
			}
		}
	}
}
