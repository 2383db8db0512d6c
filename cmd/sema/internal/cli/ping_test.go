//go:build unix

package cli_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"sema/internal/fixture/expect"
	"sema/internal/fixture/local"
	"sema/internal/fixture/redistest"
)

// pinging is what sema ping --json prints.
type pinging struct {
	Engine    string  `json:"engine"`
	Address   string  `json:"address"`
	Version   string  `json:"version"`
	RoundTrip float64 `json:"round_trip_seconds"`
	Checks    []struct{ What, State, Detail, Try string }
}

// in returns the checks in a state, as text.
func (p pinging) in(states ...string) (list []string) {
	for _, c := range p.Checks {
		if slices.Contains(states, c.State) {
			list = append(list, c.What+": "+c.Detail+". Try: "+c.Try)
		}
	}
	return list
}

// ping runs sema ping --json, which is to end with a code.
func ping(t *testing.T, code int, env ...string) (is pinging) {
	t.Helper()
	got, out := run(t, env[0], append([]string{"ping", "--json"}, env[1:]...)...)
	text, _, _ := strings.Cut(out, `{"error":`)
	if err := json.Unmarshal([]byte(text), &is); got != code || err != nil {
		t.Errorf("exit code %d, want %d: %v: %s", got, code, err, out)
	}
	return is
}

func TestPing(t *testing.T) {
	onEngines(t, func(t *testing.T, url string) {
		is := ping(t, 0, "SEMA_URL="+url)
		kind, address, _ := strings.Cut(url, "://")
		if is.Engine != kind || is.Address != address || is.RoundTrip <= 0 || is.RoundTrip > 10 || len(is.Checks) == 0 || len(is.in("ok")) != len(is.Checks) {
			t.Errorf("%+v", is)
		}
		if kind == "redis" && !regexp.MustCompile(`^(Redis|Valkey) \d`).MatchString(is.Version) {
			t.Errorf("version %q", is.Version)
		}
		out := ok(t, "SEMA_URL="+url, "ping")
		if !regexp.MustCompile(`(?m)^engine +`+kind+` .*\n^version +.*\n^round trip +[0-9.]+ ms, median of 9$`).MatchString(out) || !strings.Contains(out, "\nok ") {
			t.Errorf("%s", out)
		}
		expect.Has(t, ok(t, "SEMA_URL="+url, "ls", "--json"), `"semaphores": []`)
		if kind == "file" {
			left, err := filepath.Glob(filepath.Join(address, "*ping*"))
			if err != nil || len(left) > 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		}
	})
}

func TestPingOutOfReach(t *testing.T) {
	t.Parallel()
	stranger := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(stranger.Close)
	for url, try := range map[string]string{
		"redis://u:hush@127.0.0.1:1":     "check that the server runs and the address is right",
		"redis+cluster://127.0.0.1:1":    "check that the server runs and the address is right",
		"postgres://u:hush@127.0.0.1:1/": "check that the server runs and the address is right",
		"http://127.0.0.1:1":             "check that the server runs and the address is right",
		stranger.URL:                     "check that the URL is that of sema serve",
		"file:///proc/sema":              "choose a directory of this user on a local disk",
	} {
		t.Run(url, func(t *testing.T) {
			t.Parallel()
			code, out := run(t, "SEMA_URL="+url, "ping")
			if code != 69 || !strings.Contains(out, "Try: "+try) || strings.Count(out, "\n") != 1 || strings.Contains(out, "hush") {
				t.Errorf("exit code %d: %s", code, out)
			}
		})
	}
}

// documentedRights are the rights that docs/redis.md gives a user.
func documentedRights(t *testing.T, user string) []string {
	t.Helper()
	page, err := os.ReadFile("../../../../docs/redis.md")
	expect.OK(t, err)
	found := regexp.MustCompile("(?ms)^ACL SETUSER " + user + " (.*?)\n```").FindSubmatch(page)
	if found == nil {
		t.Fatal("docs/redis.md gives no rights to " + user)
	}
	return strings.Fields(strings.ReplaceAll(string(found[1]), "\\\n", " "))
}

// setUser gives a Redis user rights; words may be quoted as in a shell.
func setUser(t *testing.T, rdb *redis.Client, user string, rights ...string) {
	t.Helper()
	args := []any{"ACL", "SETUSER", user}
	for _, right := range rights {
		args = append(args, strings.Trim(right, "'"))
	}
	expect.OK(t, rdb.Do(expect.Within(t), args...).Err())
}

// For each right that docs/redis.md asks for, ping says that it is missing, and what it
// says to try gives the right back.
func TestPingFindsEachRightThatIsMissing(t *testing.T) {
	ofProcesses(t)
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client()
	setUser(t, rdb, "sema", documentedRights(t, "sema")...)
	env := "SEMA_URL=redis://sema:secret@" + server.Addr()
	if is := ping(t, 0, env); len(is.in("missing", "risk")) != 0 || !strings.HasPrefix(is.Version, "Redis ") || len(is.in("unknown")) != 1 {
		t.Errorf("with all rights: %+v", is)
	}
	try := regexp.MustCompile(`ACL SETUSER sema (.*); docs/redis.md`)
	for _, right := range documentedRights(t, "sema") {
		without, code, word := "-"+right[1:], 69, strings.ToUpper(right[1:])
		switch right {
		case "on", ">secret":
			continue
		case "+ping": // a refusal is an answer as well
			continue
		case "+scan":
			code = 0
		case "~sema:*":
			without, word = "resetkeys", "'~sema:*'"
		case "&sema:*":
			without, word = "resetchannels", "'&sema:*'"
		}
		setUser(t, rdb, "sema", without)
		is := ping(t, code, env)
		wrong := strings.Join(is.in("missing", "risk"), "\n")
		found := try.FindAllStringSubmatch(wrong, -1)
		if !strings.Contains(wrong, word) || len(found) == 0 {
			t.Errorf("without %s: %s", right, wrong)
			setUser(t, rdb, "sema", right)
			continue
		}
		for _, f := range found {
			setUser(t, rdb, "sema", strings.Fields(f[1])...)
		}
		if is := ping(t, 0, env); len(is.in("missing", "risk")) != 0 {
			t.Errorf("after %s: %+v", found, is)
			setUser(t, rdb, "sema", right)
		}
	}
	if keys, err := rdb.Keys(expect.Within(t), "*").Result(); err != nil || len(keys) > 0 {
		t.Errorf("left behind: %v, %v", keys, err)
	}
	setUser(t, rdb, "sema", "resetpass", ">other")
	if code, out := run(t, env, "ping"); code != 69 || !strings.Contains(out, "Try: check user and password") {
		t.Errorf("exit code %d: %s", code, out)
	}
}

// A risk is told, and is no failure.
func TestPingTellsRisks(t *testing.T) {
	ofProcesses(t)
	t.Parallel()
	server := redistest.Start(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
	is := ping(t, 0, "SEMA_URL="+server.URL())
	if risks := is.in("risk"); len(risks) != 1 || !strings.Contains(risks[0], "allkeys-lru") || !strings.Contains(risks[0], "Try: CONFIG SET maxmemory-policy noeviction") {
		t.Errorf("%+v", is)
	}
	is = ping(t, 69, "SEMA_URL="+server.URL()+"?replicas=1")
	if missing := is.in("missing"); len(missing) != 1 || !strings.Contains(missing[0], "reach 1 replicas: 0 answered") {
		t.Errorf("%+v", is)
	}
}

func TestCluster(t *testing.T) {
	ofProcesses(t)
	t.Parallel()
	c := redistest.StartCluster(t, 3)
	for _, name := range []string{"a", "b", "c", "d"} {
		if code, output := run(t, "SEMA_URL="+c.URL(), "run", name, "--", "echo", "mine"); code != 0 || output != "mine\n" {
			t.Errorf("exit code %d: %s", code, output)
		}
	}
	if code, output := run(t, "SEMA_URL="+c.URL(), "ls"); code != 0 || strings.Count(output, "\n") != 5 {
		t.Errorf("exit code %d: %s", code, output)
	}
	// One node alone, asked as if it were all there is.
	if code, output := run(t, "SEMA_URL="+c.Nodes[0].URL(), "run", "a", "--", "true"); code != 0 && (code != 69 || !strings.Contains(output, "redis+cluster://")) {
		t.Errorf("exit code %d: %s", code, output)
	}
	if is := ping(t, 0, "SEMA_URL="+c.URL()); is.Engine != "cluster" || len(is.in("ok")) != len(is.Checks) || is.Version == "" {
		t.Errorf("%+v", is)
	}
	for i, node := range c.Nodes {
		rights := documentedRights(t, "sema-cluster")
		if i == 1 {
			rights = append(rights, "-ssubscribe", "-spublish")
		}
		setUser(t, node.Client(), "sema-cluster", rights...)
	}
	missing := ping(t, 69, "SEMA_URL="+strings.Replace(c.URL(), "://", "://sema-cluster:secret@", 1)).in("missing")
	if len(missing) != 1 || !strings.Contains(missing[0], c.Nodes[1].Addr()+": SPUBLISH, SSUBSCRIBE: ") || !strings.Contains(missing[0], " +spublish +ssubscribe;") {
		t.Errorf("%q", missing)
	}
}

func TestPingPostgres(t *testing.T) {
	ofProcesses(t)
	t.Parallel()
	db, err := local.Postgres(expect.Within(t))
	expect.OK(t, err)
	t.Cleanup(db.Stop)
	env := "SEMA_URL=" + db.Address
	is := ping(t, 69, env)
	if missing := is.in("missing"); len(missing) != 1 || !strings.Contains(missing[0], "Try: create the table sema_state with sema migrate") || !strings.HasPrefix(is.Version, "PostgreSQL ") {
		t.Errorf("%+v", is)
	}
	ok(t, env, "migrate")
	if is := ping(t, 0, env); len(is.in("ok")) != len(is.Checks) || len(is.Checks) != 1 || strings.Contains(is.Address, "@") {
		t.Errorf("%+v", is)
	}
	ctx := expect.Within(t)
	admin, err := pgx.Connect(ctx, db.Address)
	expect.OK(t, err)
	t.Cleanup(func() { _ = admin.Close(ctx) })
	_, err = admin.Exec(ctx, `CREATE ROLE "app x" LOGIN; GRANT SELECT, DELETE ON sema_state TO "app x"`)
	expect.OK(t, err)
	config, err := pgx.ParseConfig(db.Address)
	expect.OK(t, err)
	as := "SEMA_URL=" + strings.Replace(db.Address, config.User+"@", "app%20x@", 1) + "&user=app%20x"
	missing := ping(t, 69, as).in("missing")
	if len(missing) != 1 || !strings.Contains(missing[0], "no right to INSERT, UPDATE") {
		t.Fatalf("%q", missing)
	}
	_, try, _ := strings.Cut(missing[0], "Try: ")
	_, err = admin.Exec(ctx, try)
	expect.OK(t, err)
	if is := ping(t, 0, as); len(is.in("ok")) != len(is.Checks) {
		t.Errorf("%+v", is)
	}
}

func TestPingServer(t *testing.T) {
	ofProcesses(t)
	t.Parallel()
	url := fileURL(t)
	s := serve(t, "--url", url)
	is := ping(t, 0, "SEMA_URL="+s.url)
	if is.Engine != "http" || is.Address != s.url || len(is.in("ok")) != 1 || is.Checks[0].What != "take permits and set limits" {
		t.Errorf("%+v", is)
	}
	tokens := filepath.Join(t.TempDir(), "tokens")
	expect.OK(t, os.WriteFile(tokens, []byte("eye read * a-secret-of-sixteen\nhand use * b-secret-of-sixteen\nweb use web- d-secret-of-sixteen\nboss admin * c-secret-of-sixteen\n"), 0o600))
	s = serve(t, "--url", url, "--token-file", tokens)
	for token, want := range map[string]struct{ state, detail string }{
		"eye.a-secret-of-sixteen":  {"risk", "has the right read"},
		"hand.b-secret-of-sixteen": {"ok", "has the right use"},
		"web.d-secret-of-sixteen":  {"unknown", "other names"},
		"boss.c-secret-of-sixteen": {"ok", ""},
	} {
		is := ping(t, 0, "SEMA_SERVER_TOKEN="+token, "--url", s.url)
		if len(is.Checks) != 1 || is.Checks[0].State != want.state || !strings.Contains(is.Checks[0].Detail, want.detail) {
			t.Errorf("%s: %+v", token, is)
		}
	}
	for _, token := range []string{"", "boss.x-secret-of-sixteen"} {
		if code, out := run(t, "SEMA_SERVER_TOKEN="+token, "ping", "--url", s.url); code != 69 || !strings.Contains(out, "Try: check the token, $SEMA_SERVER_TOKEN") {
			t.Errorf("%q: exit code %d: %s", token, code, out)
		}
	}
	expect.Has(t, ok(t, "SEMA_URL="+url, "ls", "--json"), `"semaphores": []`)

	behind := redistest.Start(t)
	s = serve(t, "--url", behind.URL())
	behind.Kill()
	if code, out := run(t, "SEMA_URL="+s.url, "ping"); code != 69 || !strings.Contains(out, behind.Addr()+": connect: connection refused") {
		t.Errorf("exit code %d: %s", code, out)
	}
}
