package cli_test

import (
	"os/exec"
	"strings"
	"testing"
)

// What a command suggests is about the engine that the command was about.
func TestSuggestedCommandsKeepTheEngine(t *testing.T) {
	t.Parallel()
	url := fileURL(t)
	ok(t, "", "acquire", "--url", url, "--lease", "1h", "busy")
	for _, args := range [][]string{
		{"run", "-w", "2", "busy", "--", "true"},
		{"run", "-n", "2", "--on-conflict=strict", "busy", "--", "true"},
		{"rm", "busy"}, {"show", "idle"}, {"limit", "busy", "x"},
		{"why", "busy", "nobody"}, {"run", "busy"}, {"adapt", "busy", "--min", "2", "--max", "1"},
		{"acquire", "--no-wait", "busy"},
	} {
		code, said := run(t, "", append([]string{"--url", url}, args...)...)
		if try := "Try: sema "; code == 0 || !strings.Contains(said, try) || !strings.Contains(said, " --url "+url) {
			t.Errorf("%q: exit code %d: %s", args, code, said)
		}
	}
	// It can be pasted.
	_, said := run(t, "", "--url", url, "run", "-n", "2", "--on-conflict=strict", "busy", "--", "true")
	_, try, _ := strings.Cut(strings.TrimSpace(said), "Try: ")
	if out, err := exec.Command("sh", "-c", try).CombinedOutput(); err != nil || ok(t, "", "limit", "--url", url, "busy") != "2\n" {
		t.Errorf("%s: %s, %v", try, out, err)
	}
}
