package cli_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"sema/internal/fixture/expect"
)

// The examples print what docs/jobs.md shows.
func TestExamples(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/jobs.md")
	expect.OK(t, err)
	sema, err := exec.LookPath("sema")
	expect.OK(t, err)
	onEngines(t, func(t *testing.T, url string) {
		for _, name := range []string{"examples/xargs.sh", "examples/cron.sh"} {
			cmd := exec.CommandContext(t.Context(), "../../../../"+name)
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
