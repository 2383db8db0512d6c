package cli_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// The examples print what docs/jobs.md shows.
func TestExamples(t *testing.T) {
	page, err := os.ReadFile("../../docs/jobs.md")
	if err != nil {
		t.Fatal(err)
	}
	sema, err := exec.LookPath("sema")
	if err != nil {
		t.Fatal(err)
	}
	onEngines(t, func(t *testing.T, url string) {
		for _, name := range []string{"examples/xargs.sh", "examples/cron.sh"} {
			cmd := exec.CommandContext(t.Context(), "../../"+name)
			cmd.Env = append(os.Environ(), "SEMA="+sema, "SEMA_URL="+url)
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%s: %v\n%s", name, err, out)
			}
			var block strings.Builder
			for line := range strings.Lines("make build && " + name + "\n" + string(out)) {
				block.WriteString("    " + line)
			}
			if !strings.Contains(string(page), "\n"+block.String()+"\n") {
				t.Errorf("docs/jobs.md does not show\n%s", block.String())
			}
		}
	})
}
