//go:build unix

package cli_test

import (
	"strings"
	"testing"

	"sema/internal/fixture/expect"
	"sema/internal/fixture/local"
)

// The commands on PostgreSQL, from a database without the table on.
func TestPostgres(t *testing.T) {
	ofProcesses(t)
	t.Parallel()
	db, err := local.Postgres(expect.Within(t))
	expect.OK(t, err)
	t.Cleanup(db.Stop)
	env := "SEMA_URL=" + db.Address
	for _, args := range [][]string{{"run", "x", "--", "echo", "never"}, {"show", "x"}, {"ls"}, {"limit", "x", "3"}} {
		if code, output := run(t, env, args...); code != 69 || !strings.Contains(output, "Try: create the table sema_state with sema migrate") {
			t.Errorf("%v: exit code %d: %s", args, code, output)
		}
	}
	for range 2 {
		if code, output := run(t, env, "migrate"); code != 0 || output != "the table sema_state is there\n" {
			t.Errorf("exit code %d: %s", code, output)
		}
	}
	if got := ok(t, env, "run", "-n", "2", "x", "--", "echo", "mine"); got != "mine\n" {
		t.Error(got)
	}
	id := strings.TrimSpace(ok(t, env, "acquire", "-n", "2", "x"))
	if got := ok(t, env, "show", "x"); !strings.Contains(got, strings.Fields(id)[0]) {
		t.Errorf("%s is not in\n%s", id, got)
	}
	expect.Has(t, ok(t, env, "ls"), "x")
	ok(t, env, "release", "x", strings.Fields(id)[0])
	ok(t, env, "limit", "x", "5")
	if got := ok(t, env+"&sema_poll=20ms", "limit", "x"); !strings.HasPrefix(got, "5") {
		t.Error(got)
	}
	if code, output := run(t, env+"&sema_schema=other", "show", "x"); code != 69 || !strings.Contains(output, "sema migrate") {
		t.Errorf("exit code %d: %s", code, output)
	}
	expect.Has(t, ok(t, env+"&sema_schema=other", "migrate", "--print"), `"other"."sema_state"`)
	if code, output := run(t, "SEMA_URL=file:///nowhere", "migrate"); code != 64 || !strings.Contains(output, "sema migrate --url postgres://") {
		t.Errorf("exit code %d: %s", code, output)
	}
	if code, output := run(t, strings.Replace(env, "/postgres?", "/ghost?", 1), "ls"); code != 69 || !strings.Contains(output, "check the name of the database") {
		t.Errorf("exit code %d: %s", code, output)
	}
}
