package cli_test

import (
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
	"sema/internal/fixture/stall"
)

// run runs the program to its end.
func run(t testing.TB, env string, args ...string) (code int, output string) {
	t.Helper()
	ofProcesses(t)
	cmd := exec.Command("sema", args...)
	cmd.Env = append(os.Environ(), env)
	text, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return shellCode(cmd.ProcessState), string(text)
}

// ok is run, for a command that succeeds.
func ok(t *testing.T, env string, args ...string) string {
	t.Helper()
	code, out := run(t, env, args...)
	if code != 0 {
		t.Fatalf("sema %v: exit code %d: %s", args, code, out)
	}
	return out
}

func TestSecretsAreNeverPrinted(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"redis://user:hush-me@127.0.0.1:1/0",
		"redis://user:hush-me@127.0.0.1:1/zz",
		"redis://:hush-me@127.0.0.1:port",
		"redis://:hush/me@127.0.0.1:1",
		"redis://:hush@me@127.0.0.1:1",
		"redis://:hush?me@127.0.0.1:1",
		"redis://:hush#me@127.0.0.1:1",
		"redis://:hush%zzme@127.0.0.1:1",
		"redis://:hush-me",
		"redis://host:hush-me",
		"redis://127.0.0.1:1?password=hush-me",
		"redis+sentinel://127.0.0.1:1/m?sentinel_password=hush-me",
		"redis+sentinel://u:hush-me@127.0.0.1:1",
		"redis+cluster://u:hush-me@127.0.0.1:1/9",
		"redis+cluster://u:hush-me@127.0.0.1:1",
		"postgres://u:hush-me@127.0.0.1:1/db",
		"postgres://u:hush-me@127.0.0.1:port/db",
		"postgres://u:hush@me@127.0.0.1:1/db",
		"postgres://u:hush/me@127.0.0.1:1/db",
		"postgresql://127.0.0.1:1/db?user=u&password=hush-me",
		"postgres://u:hush-me@127.0.0.1:1/db?sema_poll=x",
		"postgres://u:hush-me@127.0.0.1:1/db?sslmode=hush-me",
		"rediss://u:hush-me@127.0.0.1:1",
		"nonsense://u:hush-me@host",
		"u:hush-me@host",
	} {
		for _, how := range []string{"flag", "environment"} {
			t.Run(how, func(t *testing.T) {
				t.Parallel()
				args, env := []string{"show", "x"}, "SEMA_URL="+url
				if how == "flag" {
					args, env = append(args, "--url", url), "SEMA_URL="
				}
				code, output := run(t, env, args...)
				if code != 64 && code != 69 {
					t.Errorf("%s: exit code %d", url, code)
				}
				if strings.Contains(output, "hush") || strings.Contains(output, "me@") {
					t.Errorf("%s: %s", url, output)
				}
			})
		}
	}
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	env := "SEMA_URL=redis://127.0.0.1:1"
	for _, args := range [][]string{
		{"run", "--no-wait", "x", "--", "echo", "never"},
		{"run", "--lease", "2s", "--wait", "1s", "x", "--", "echo", "never"},
		{"ls"}, {"show", "x"}, {"limit", "x"}, {"limit", "x", "3"}, {"release", "x", "pabc.1-1-1"},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			t.Parallel()
			code, output := run(t, env, args...)
			if code != 69 || !strings.Contains(output, "connection refused. Try: check that the server runs and the address is right") || strings.Count(output, "\n") != 1 {
				t.Errorf("exit code %d: %s", code, output)
			}
		})
	}
}

// A look, or a new limit, while the server refuses connections is tried again
// and succeeds.
func TestLooksAreTriedAgain(t *testing.T) {
	ofProcesses(t)
	t.Parallel()
	server := redistest.Start(t)
	ok(t, "SEMA_URL="+server.URL(), "limit", "db", "4")
	for _, args := range [][]string{{"limit", "db", "5"}, {"show", "db"}, {"why", "db"}, {"ls"}, {"find", "nobody"}} {
		t.Run(args[0], func(t *testing.T) {
			t.Parallel()
			addr, refused := refusing(t, server.Addr(), 6)
			code, output := run(t, "SEMA_URL=redis://"+addr, args...)
			if want := map[string]int{"find": 1}[args[0]]; code != want || refused.Load() < 6 {
				t.Errorf("exit code %d after %d attempts: %s", code, refused.Load(), output)
			}
		})
	}
}

// A command that waits for a permit waits for the server as well, and says so.
func TestRunWaitsForTheServer(t *testing.T) {
	ofProcesses(t)
	t.Parallel()
	server := redistest.Start(t)
	for name, row := range map[string]struct {
		args []string
		code int
		says string // at some time
		ends string
	}{
		"waits":   {[]string{"run", "a", "--", "echo", "mine"}, 0, "the engine is away, waiting on: ", "mine\n"},
		"refused": {[]string{"run", "-n", "2", "-w", "3", "b", "--", "echo", "never"}, 64, "", "weight 3 is above the limit 2. Try: -n 3\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addr, refused := refusing(t, server.Addr(), 40) // more than one look may try
			code, output := run(t, "SEMA_URL=redis://"+addr, row.args...)
			if code != row.code || refused.Load() < 40 || !strings.Contains(output, row.says) || !strings.HasSuffix(output, row.ends) {
				t.Errorf("exit code %d after %d attempts: %s", code, refused.Load(), output)
			}
		})
	}
}

// refusing is an address where the first connections break, and later ones reach a server.
func refusing(t *testing.T, server string, first int64) (addr string, refused *atomic.Int64) {
	t.Helper()
	refused = &atomic.Int64{}
	return front(t, server, func(down net.Conn) bool {
		if refused.Load() == first {
			return true
		}
		refused.Add(1)
		_ = down.Close()
		return false
	}), refused
}

// front is an address where those connections reach a server that passes lets through. It has the others.
func front(t *testing.T, server string, passes func(net.Conn) bool) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	expect.OK(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			down, err := l.Accept()
			if err != nil {
				return
			}
			if !passes(down) {
				continue
			}
			up, err := net.Dial("tcp", server)
			if err != nil {
				_ = down.Close()
				continue
			}
			go func() { _, _ = io.Copy(up, down); _ = up.Close() }()
			go func() { _, _ = io.Copy(down, up); _ = down.Close() }()
		}
	}()
	return l.Addr().String()
}

// The password is also the semaphore's name: redaction must not hide the name.
func TestNameThatIsThePassword(t *testing.T) {
	t.Parallel()
	if code, output := run(t, "SEMA_URL=redis://u:db@127.0.0.1:1", "release", "db", "pabc.1-1-1"); code != 69 || !strings.Contains(output, `release "db": `) {
		t.Errorf("exit code %d: %s", code, output)
	}
}

func TestSentinel(t *testing.T) {
	ofProcesses(t)
	t.Parallel()
	stall.Run(t, func(t *stall.Case) { // Sentinels lose patience with a master that stands still
		s := redistest.StartSentinel(t)
		if code, output := run(t, "SEMA_URL="+s.URL()+"?db=2", "run", "x", "--", "echo", "mine"); code != 0 || output != "mine\n" {
			t.Errorf("exit code %d: %s", code, output)
		}
		if code, output := run(t, "SEMA_URL="+s.URL()+"?db=2", "ping"); code != 0 || !strings.Contains(output, "engine      sentinel 127.0.0.1:") {
			t.Errorf("exit code %d: %s", code, output)
		}
		if code, output := run(t, "SEMA_URL=redis+sentinel://"+s.Sentinels[0].Addr()+"/nobody", "show", "x"); code != 69 {
			t.Errorf("unknown master: exit code %d: %s", code, output)
		}
	})
}

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

// A server takes connections and never says a word, as one does that is stopped, or behind a
// firewall. A wait for a permit ends when it is over: not a lease later, when
// nothing can be owed to the server any more.
func TestAWaitForASilentServerEndsInTime(t *testing.T) {
	ofProcesses(t)
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	expect.OK(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = c.Close() })
		}
	}()
	began := time.Now()
	out, err := exec.Command("sema", "run", "--url", "redis://"+l.Addr().String(), "--lease", "10m", "--wait", "500ms", "x", "--", "true").CombinedOutput()
	var ended *exec.ExitError
	if !errors.As(err, &ended) || ended.ExitCode() != 69 || !strings.HasPrefix(string(out), `sema: acquire "x": `) {
		t.Errorf("%v: %s, want 69 and what the wait met", err, out)
	}
	if took := time.Since(began); took > time.Minute {
		t.Errorf("it took %v", took)
	}
}

// The connection for notifications is never answered. A wait that ends meanwhile leaves nothing behind.
func TestAWaitEndsWhileItsSubscriptionIsSetUp(t *testing.T) {
	ofProcesses(t)
	t.Parallel()
	server, first, silent := redistest.Start(t).Addr(), true, make(chan bool, 100)
	addr := front(t, server, func(c net.Conn) bool {
		if first {
			first = false
			return true
		}
		t.Cleanup(func() { _ = c.Close() })
		silent <- true
		return false
	})
	ok(t, "", "acquire", "--url", "redis://"+server, "x")
	var said strings.Builder
	cmd := exec.Command("sema", "run", "--url", "redis://"+addr+"?pool_size=1&read_timeout=1m", "x", "--", "true")
	cmd.Stdout, cmd.Stderr = &said, &said
	expect.OK(t, cmd.Start())
	select {
	case <-silent:
	case <-expect.Within(t).Done():
		t.Error("no subscription")
	}
	expect.OK(t, cmd.Process.Signal(os.Interrupt))
	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() == 99 {
		t.Errorf("%v: %s", err, said.String())
	}
}

// The bound is for the queue, and not for the way to the engine: what is free is taken.
func TestAWaitShorterThanTheWayToTheEngine(t *testing.T) {
	ofProcesses(t)
	t.Parallel()
	proxy := redistest.StartProxy(t, redistest.Start(t).Addr())
	proxy.Change(func(trouble *redistest.Trouble) { trouble.Latency = 5 * time.Millisecond })
	url := "redis://" + proxy.Addr()
	for _, env := range []string{"NONE=", "SEMA_HELD=outer"} { // within another permit it looks first whether the wait would be in vain
		for _, wait := range []string{"0.001", "0.000000001"} {
			ok(t, env, "run", "--url", url, "--wait", wait, "free", "--", "true")
			permit := ok(t, env, "acquire", "--url", url, "--wait", wait, "free")
			if code, out := run(t, env, "run", "--url", url, "--wait", wait, "free", "--", "true"); code != 75 {
				t.Errorf("exit code %d: %s", code, out)
			}
			ok(t, env, "release", "--url", url, "free", strings.TrimSpace(permit))
		}
	}
}
