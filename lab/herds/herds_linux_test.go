// Package herds has many processes come at one moment, on a busy host: as cron starts them.
package herds

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"sema"
	"sema/engines/fileengine"
	"sema/engines/pgengine"
	"sema/engines/redisengine"
	"sema/internal/fixture/child"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/local"
	"sema/internal/fixture/redistest"
)

const (
	memberRole = "herds member"
	busyRole   = "herds busy"
)

func TestMain(m *testing.M) {
	child.Role(memberRole, member)
	child.Role(busyRole, func(string) error {
		n := 0
		for { // until it is killed
			n++
		}
	})
	child.Play()
	goleak.VerifyTestMain(m)
}

// open makes an engine with the defaults of all libraries.
func open(url string) (e sema.Engine, closes func(), err error) {
	kind, rest, _ := strings.Cut(url, "://")
	switch kind {
	case "redis":
		o, err := redis.ParseURL(url)
		if err != nil {
			return nil, nil, err
		}
		rdb := redis.NewClient(o)
		e, err := redisengine.New(rdb, nil)
		return e, func() { _ = rdb.Close() }, err
	case "postgres":
		pool, err := pgxpool.New(context.Background(), url)
		if err != nil {
			return nil, nil, err
		}
		e, err := pgengine.New(pool, nil)
		return e, pool.Close, err
	}
	e, err = fileengine.New(rest, nil)
	return e, func() {}, err
}

// member is one of a herd. It comes when it is told, and says how that went.
func member(url string) error {
	fmt.Println("ready")
	if _, err := child.Order(); err != nil {
		return err
	}
	e, closes, err := open(url)
	if err != nil {
		return err
	}
	defer closes()
	defer func() { _ = e.Close() }()
	s, err := sema.New(e, "herd", 8, nil)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	p, err := s.Acquire(context.Background())
	if err == nil {
		time.Sleep(10 * time.Millisecond) // its work
		err = p.Release()
	}
	switch {
	case err == nil:
		fmt.Println("ran")
	case errors.Is(err, sema.ErrEngine):
		fmt.Println("failed:", err)
	default:
		fmt.Println(err)
	}
	return nil
}

// members returns what starts a member, and keeps two processors busy beside the herd.
func members(t *testing.T, url string) func() *child.Tested {
	t.Helper()
	for range 2 {
		child.Run(t, busyRole, "")
	}
	return func() *child.Tested { return child.Run(t, memberRole, url) }
}

// come has so many processes come when trouble was there. It returns how many said what.
func come(t *testing.T, n int, start func() *child.Tested, trouble func()) (said map[string]int) {
	t.Helper()
	all := make([]*child.Tested, n)
	for i := range all {
		all[i] = start()
	}
	for _, p := range all {
		p.Says("ready")
	}
	trouble()
	for _, p := range all {
		p.Tell("come")
	}
	said = map[string]int{}
	for _, p := range all {
		line, err := p.Line(expect.Within(t))
		if err == nil {
			err = p.Wait(expect.Within(t))
		}
		if err != nil {
			line = fmt.Sprint(line, err)
		}
		said[line]++
	}
	return said
}

// size is how many processes come: $SEMA_HERD, or so many.
func size(usual int) int {
	if n, err := strconv.Atoi(os.Getenv("SEMA_HERD")); err == nil {
		return n
	}
	return usual
}

// stage is an engine that can be stopped.
type stage struct {
	url  string
	stop func()
}

func files(t *testing.T) stage {
	dir := t.TempDir()
	return stage{"file://" + dir, func() {
		e, err := fileengine.New(dir, nil)
		expect.OK(t, err)
		s, err := sema.New(e, "herd", 8, nil)
		expect.OK(t, err)
		p, err := s.Acquire(t.Context())
		expect.OK(t, err)
		logs, err := filepath.Glob(filepath.Join(dir, "*.log"))
		if err != nil || len(logs) != 1 {
			t.Fatal(logs, err)
		}
		f, err := os.OpenFile(logs[0], os.O_RDWR, 0)
		expect.OK(t, err)
		expect.OK(t, unix.Flock(int(f.Fd()), unix.LOCK_EX)) // as a process that is stopped during a step
		t.Cleanup(func() {
			_ = f.Close()
			_, _, _ = p.Release(), s.Close(), e.Close()
		})
	}}
}

func redisServer(t *testing.T) stage {
	s := redistest.Start(t)
	return stage{s.URL(), s.Stop}
}

func postgres(connections string) func(t *testing.T) stage {
	return func(t *testing.T) stage {
		db, err := local.Postgres(expect.Within(t), "-c", "max_connections="+connections)
		expect.OK(t, err)
		t.Cleanup(db.Stop)
		pool, err := pgxpool.New(t.Context(), db.Address)
		expect.OK(t, err)
		defer pool.Close()
		e, err := pgengine.New(pool, nil)
		expect.OK(t, err)
		defer func() { _ = e.Close() }()
		expect.OK(t, e.Migrate(t.Context()))
		return stage{db.Address, func() {
			expect.OK(t, unix.Kill(db.PID(), unix.SIGSTOP)) // it makes no connections any more
			t.Cleanup(func() { _ = unix.Kill(db.PID(), unix.SIGCONT) })
		}}
	}
}

var stages = []struct {
	name  string
	start func(*testing.T) stage
	usual int
}{{"files", files, 300}, {"redis", redisServer, 200}, {"postgres", postgres("100"), 100}}

// A busy engine is a queue: none of a herd fails. A process that is slow to be served does not fail after three seconds.
func TestAHerdIsServed(t *testing.T) {
	for _, s := range stages {
		t.Run(s.name, func(t *testing.T) {
			n, url := size(s.usual), s.start(t).url
			if said := come(t, n, members(t, url), func() {}); said["ran"] != n {
				t.Errorf("%v", said)
			}
		})
	}
}

// So it is with the program, as cron starts it at minute 0.
func TestAHerdOfCommandsRuns(t *testing.T) {
	program := filepath.Join(t.TempDir(), "sema")
	build := exec.Command("go", "build", "-o", program, ".")
	build.Dir = "../../cmd/sema"
	out, err := build.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, s := range []struct {
		name  string
		start func(*testing.T) string
		n     int
	}{
		{"files", func(t *testing.T) string { return "file://" + t.TempDir() }, 1000},
		{"redis", func(t *testing.T) string { return redisServer(t).url }, 1000},
		{"serve", func(t *testing.T) string { return serve(t, program, redisServer(t).url) }, 300},
		{"postgres", func(t *testing.T) string { return postgres("400")(t).url }, 300},
	} {
		t.Run(s.name, func(t *testing.T) {
			url, errs := s.start(t), filepath.Join(t.TempDir(), "errors")
			command := func() *child.Tested {
				c := exec.Command("sh", "-c", `echo ready; read x; exec "$0" run -n 8 herd -- sh -c 'sleep 0.05; echo ran' 2>> "$1"`, program, errs)
				c.Env = append(os.Environ(), "SEMA_URL="+url)
				return child.RunCommand(t, c)
			}
			if said := come(t, s.n, command, func() {}); said["ran"] != s.n {
				why, _ := os.ReadFile(errs)
				t.Errorf("%v\n%s", said, why)
			}
		})
	}
}

// serve starts the program's server, and returns its URL.
func serve(t *testing.T, program, url string) string {
	c := exec.Command(program, "serve", "--url", url, "--listen", "127.0.0.1:0")
	log, err := c.StderrPipe()
	expect.OK(t, err)
	expect.OK(t, c.Start())
	t.Cleanup(func() { _, _ = c.Process.Kill(), c.Wait() })
	for in := bufio.NewReader(log); ; {
		line, err := in.ReadString('\n')
		expect.OK(t, err)
		if _, at, found := strings.Cut(line, "url="); found {
			go func() { _, _ = io.Copy(io.Discard, log) }()
			return strings.Fields(at)[0]
		}
	}
}

// An engine that is dead is none, however many wait for it.
func TestAHerdAtADeadEngineFails(t *testing.T) {
	for _, s := range stages {
		t.Run(s.name, func(t *testing.T) {
			on := s.start(t)
			for said := range come(t, 20, members(t, on.url), on.stop) {
				if !strings.HasPrefix(said, "failed: ") {
					t.Error(said)
				}
			}
		})
	}
}
