package cli_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// inContainer runs a script in a namespace of process ids of its own, whose
// first process is sema.
func inContainer(t testing.TB, url string, proc bool, script string) (code int, output string) {
	t.Helper()
	return inNamespace(t, url, proc, "sema", "run", "--lease", "10s", "one", "--", "sh", "-c", script)
}

// inNamespace runs a program as the first process of a namespace of process ids.
func inNamespace(t testing.TB, url string, proc bool, words ...string) (code int, output string) {
	t.Helper()
	args := []string{"--user", "--map-root-user", "--pid", "--fork", "--kill-child"}
	if proc {
		args = append(args, "--mount-proc")
	}
	cmd := exec.Command("unshare", append(args, words...)...)
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

// Below a first process that does not reap, sema leaves no zombie, however it ends. Nor does it leave a file that
// tells of its life.
func TestNoZombiesAreLeft(t *testing.T) {
	onEngines(t, func(t *testing.T, url string) {
		for name, script := range map[string]string{
			"normal":            `for i in 1 2 3 4 5; do sema run v -- true; done`,
			"at once":           `seq 24 | xargs -P8 -I{} sema run -n 4 v -- true`,
			"TERM":              `sh -c 'exec sema run v -- sh -c "kill -TERM $$; exec sleep 100"'`,
			"^C":                `setsid -w sh -c 'exec sema run v -- sh -c "kill -INT 0; exec sleep 100"'`,
			"while it waits":    `sema run v -- sh -c "timeout -s INT 0.1 env -u SEMA_HELD sema run v -- true"`,
			"permit lost":       `sema run v -- sh -c 'sema revoke v "$SEMA_PERMIT"; exec sleep 100'`,
			"not found":         `sema run v -- no-such-command`,
			"not executable":    `printf '#!/no/such/shell\n' >"$0.x"; chmod +x "$0.x"; sema run v -- "$0.x"`,
			"guard killed":      `sema run v -- sh -c 'kill -KILL $PPID; exec sleep 100'`,
			"permit of acquire": `sema release v "$(sema acquire v)"`,
		} {
			t.Run(name, func(t *testing.T) {
				script = strings.ReplaceAll(script, "$0", filepath.Join(t.TempDir(), "file"))
				if _, output := inNamespace(t, url, true, "careless-init", script); !strings.HasSuffix(output, "running [] zombies []\n") {
					t.Error(output)
				}
				if dir, ok := strings.CutPrefix(url, "file://"); ok {
					if left, err := filepath.Glob(filepath.Join(dir, "*.life")); err != nil || len(left) > 0 {
						t.Errorf("left: %v, %v", left, err)
					}
				}
			})
		}
	})
}
