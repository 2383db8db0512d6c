package versions_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
	"sema/internal/fixture/stall"
	"sema/internal/fixture/versions"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(redistest.Settled(m)) }

// last is the archive of the last release.
func last(tb testing.TB) (path, release string) {
	all, err := filepath.Glob("last/*.tar.gz")
	expect.OK(tb, err)
	if len(all) != 1 {
		tb.Fatalf("lab/versions/last has %q, want one archive: scripts/release/archive.sh makes it", all)
	}
	return all[0], strings.TrimSuffix(filepath.Base(all[0]), ".tar.gz")
}

// build makes the program of the load from a source tree. Its package had another name in v0.1.0-rc.1.
func build(tb testing.TB, source string) string {
	worker := "./internal/fixture/versions/worker"
	if _, err := os.Stat(filepath.Join(source, worker)); err != nil {
		worker = "./lab/versions/worker"
	}
	program := filepath.Join(tb.TempDir(), "worker")
	cmd := exec.CommandContext(tb.Context(), "go", "build", "-o", program, worker)
	cmd.Dir = source
	if out, err := cmd.CombinedOutput(); err != nil {
		tb.Fatalf("go build in %s: %v\n%s", source, err, out)
	}
	return program
}

// The last release and this one share a semaphore under load, on one Redis and in one directory, while either takes
// the other's place: nobody notices.
func TestTheLastReleaseAndThisOne(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds programs, and takes processes")
	}
	archive, release := last(t)
	source := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "tar", "-xzf", archive, "-C", source).CombinedOutput(); err != nil {
		t.Fatalf("tar: %v\n%s", err, out)
	}
	older, newer := build(t, source), build(t, "../..")
	t.Logf("beside %s", release)
	for name, url := range map[string]func(t testing.TB) string{
		"redis":     func(t testing.TB) string { return redistest.Start(t).URL() },
		"directory": func(t testing.TB) string { return "file://" + t.TempDir() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stall.Run(t, func(t *stall.Case) { // the leases of the last release's load are 3 s
				for _, order := range [][2]string{{older, newer}, {newer, older}} {
					place := url(t)
					crew := versions.NewCrew(t, versions.Work{Name: "x", Limit: 3, Callers: 4, Keeps: 1})
					start := func(program string) versions.Member {
						return crew.Join(func(w versions.Work) *exec.Cmd {
							work, err := json.Marshal(w)
							expect.OK(t, err)
							return exec.Command(program, place, string(work)) //nolint:gosec // built above
						})
					}
					first, second := start(order[0]), start(order[0])
					third := start(order[1])
					first.Leave()
					fourth := start(order[1])
					second.Leave()
					third.Leave()
					fourth.Leave()
					crew.Judge()
				}
			})
		})
	}
}
