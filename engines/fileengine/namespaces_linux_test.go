package fileengine

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"sema/internal/fixture/child"
	"sema/internal/fixture/expect"
)

// namespaces are the options of unshare(1), and a script that runs in the new namespaces before
// the program. Each of two containers has a boot id and a clock of its own.
var namespaces = []struct{ name, options, script string }{
	{name: "host"},
	{"mount", "--mount", "mount --bind $dir/boot-id /proc/sys/kernel/random/boot_id"},
	{"no proc", "--mount", "mount -t tmpfs none /proc"},
	{"pid", "--pid --fork --kill-child --mount-proc", ""},
	{"user", "--user --map-root-user", ""},
	{"time", "--time --monotonic 3600 --boottime 3600", ""},
	{"time without proc", "--time --monotonic 86400 --mount", "mount -t tmpfs none /proc"},
}

// inNamespaces starts this program in a role, in the namespaces of namespaces[i]. Users other than
// root need a user namespace for the others.
func inNamespaces(tb testing.TB, i int, dir, role string, job any) *child.Tested {
	tb.Helper()
	cmd, err := child.Command(role, job)
	expect.OK(tb, err)
	if n := namespaces[i]; n.options != "" {
		path, err := exec.LookPath("unshare")
		expect.OK(tb, err)
		options := strings.Fields(n.options)
		if os.Getuid() != 0 {
			options = append(options, "--map-root-user")
		}
		cmd.Args = append([]string{"unshare"}, append(options, "sh", "-ec", "dir=$1\n"+n.script+"\nexec \"$0\"", cmd.Path, dir)...)
		cmd.Path = path
	}
	return child.RunCommand(tb, cmd)
}

// Processes share a limit whatever namespaces each of them is in: its boot id, its clock and its
// users may be others. SEMA_STRESS_NAMESPACES sets how many permits each process takes.
func TestNamespacesShareALimit(t *testing.T) {
	t.Parallel()
	rounds, _ := strconv.Atoi(os.Getenv("SEMA_STRESS_NAMESPACES"))
	for i, a := range namespaces {
		for j, b := range namespaces[:i+1] {
			t.Run(a.name+" and "+b.name, func(t *testing.T) {
				dir := t.TempDir()
				expect.OK(t, os.WriteFile(filepath.Join(dir, "boot-id"), []byte("6ba7b810-9dad-11d1-80b4-00c04fd430c8\n"), 0o600))
				both := []*child.Tested{inNamespaces(t, i, dir, stormRole, dir), inNamespaces(t, j, dir, stormRole, dir)}
				for _, c := range both {
					c.Says("held")
				}
				for range max(rounds, 20) { // of each, while the other goes on
					for _, c := range both {
						c.Says("held")
					}
				}
			})
		}
	}
}
