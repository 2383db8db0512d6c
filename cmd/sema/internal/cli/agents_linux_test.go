package cli_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sema/internal/fixture/expect"
)

// Each console block of docs/agents.md prints what the page shows, in a shell whose make builds nothing.
func TestPageOfAgents(t *testing.T) {
	t.Parallel()
	ofProcesses(t)
	page, err := os.ReadFile("../../../../docs/agents.md")
	expect.OK(t, err)
	dir := t.TempDir()
	for name, text := range map[string]string{
		"Makefile":   "all:\n\t@echo built\nimage:\n\t@echo image\n",
		"guarded.mk": regexp.MustCompile(`(?s)    (ifndef.*?endif\n)`).FindStringSubmatch(string(page))[1] + "all:\n\t@echo built\n",
	} {
		expect.OK(t, os.WriteFile(filepath.Join(dir, name), []byte(strings.ReplaceAll(text, "\n    ", "\n")), 0o600))
	}
	blocks := regexp.MustCompile("(?s)```console\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(blocks) == 0 {
		t.Fatal("the page has no blocks")
	}
	env := slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, "MAKE") }) // of a make that runs this test
	env = append(env, "SEMA_URL="+fileURL(t))
	for _, block := range blocks {
		var script, want strings.Builder
		for line := range strings.Lines(block[1]) {
			if command, ok := strings.CutPrefix(line, "$ "); ok {
				script.WriteString(command)
			} else {
				want.WriteString(line)
			}
		}
		shell := exec.CommandContext(t.Context(), "bash", "-c", "exec 2>&1\n"+script.String())
		shell.Dir, shell.Env = dir, env
		if out, err := shell.CombinedOutput(); err != nil || string(out) != want.String() {
			t.Errorf("%v\n%sprints\n%s", err, block[1], out)
		}
	}
}
