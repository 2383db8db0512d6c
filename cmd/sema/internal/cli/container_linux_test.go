package cli_test

import (
	"os"
	"os/exec"
	"testing"
)

// inContainer runs a script in a namespace of process ids of its own, whose
// first process is sema.
func inContainer(t testing.TB, url string, proc bool, script string) (code int, output string) {
	t.Helper()
	args := []string{"--user", "--map-root-user", "--pid", "--fork", "--kill-child"}
	if proc {
		args = append(args, "--mount-proc")
	}
	cmd := exec.Command("unshare", append(args, "sema", "run", "--lease", "10s", "one", "--", "sh", "-c", script)...)
	cmd.Env = append(os.Environ(), "SEMA_URL="+url)
	text, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return shellCode(cmd.ProcessState), string(text)
}

// As the first process of a container sema takes notice of the ends of orphans:
// none stays behind as a zombie. The exit code is the command's.
func TestFirstProcessOfAContainer(t *testing.T) {
	t.Parallel()
	code, output := inContainer(t, fileURL(t), true, `
		for i in 1 2 3; do (true & exec true); (setsid true & exec true); done
		while grep -qs '^State:	Z' /proc/[0-9]*/status; do sleep 0.01; done
		echo clean; exit 5`)
	if code != 5 || output != "clean\n" {
		t.Errorf("exit code %d: %s", code, output)
	}
	// It cannot die of a signal itself; its code tells of it as a shell would.
	if code, output := inContainer(t, fileURL(t), true, "kill -TERM $$"); code != 128+15 {
		t.Errorf("exit code %d: %s", code, output)
	}
}

// Where /proc shows other process ids than those that count here, nobody is
// killed by them.
func TestProcOfAnotherNamespace(t *testing.T) {
	t.Parallel()
	code, output := inContainer(t, fileURL(t), false, `trap 'echo term; exit 0' TERM
		sema revoke one "$SEMA_PERMIT"; echo revoked; while :; do sleep 0.05; done`)
	if code != 76 {
		t.Errorf("exit code %d: %s", code, output)
	}
}
