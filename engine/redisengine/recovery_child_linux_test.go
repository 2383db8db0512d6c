package redisengine_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sema"
	"sema/engine/redisengine"
	"sema/lab/expect"
)

// crewEnv tells the test binary to be a process that waits, and what for.
const crewEnv = "SEMA_RECOVERY_CREW"

// crewJob is what such a process does: when it is told to, so many goroutines
// acquire once each, one after the other, and say when they were served.
type crewJob struct {
	URL     string        `json:"url"`
	Name    string        `json:"name"`
	Waiters int           `json:"waiters"`
	Lease   time.Duration `json:"lease"`
}

// served is what a waiter says when it has released.
type served struct {
	at     time.Time
	token  int64
	number int // of the waiter within its process, in the order of its queue
	from   *crewChild
	failed string
}

// playCrew reports whether this process was started to wait, and has done so.
func playCrew() bool {
	words := os.Getenv(crewEnv)
	if words == "" {
		return false
	}
	var j crewJob
	err := json.Unmarshal([]byte(words), &j)
	if err == nil {
		err = j.wait()
	}
	if err != nil {
		fmt.Println("failed", err)
	}
	_, _ = io.Copy(io.Discard, os.Stdin) // until the test has seen what it wants of this process
	return true
}

func (j crewJob) wait() error {
	o, err := redis.ParseURL(j.URL)
	if err != nil {
		return err
	}
	o.ContextTimeoutEnabled = true
	rdb := redis.NewClient(o)
	defer func() { _ = rdb.Close() }()
	e, err := redisengine.New(rdb, nil)
	if err != nil {
		return err
	}
	defer func() { _ = e.Close() }()
	s, err := sema.New(e, j.Name, 1, &sema.Options{Lease: j.Lease})
	if err != nil {
		return err
	}
	ctx := context.Background()
	if _, err := s.State(ctx); err != nil { // so that the connection is there
		return err
	}
	fmt.Println("ready")
	if _, err := io.ReadFull(os.Stdin, make([]byte, 1)); err != nil {
		return err
	}
	var all sync.WaitGroup
	for n := range j.Waiters {
		all.Go(func() {
			p, err := s.Acquire(ctx)
			if err != nil {
				fmt.Println("failed", err)
				return
			}
			at, token := time.Now().UnixNano(), p.Token()
			if err := p.Release(); err != nil {
				fmt.Println("failed to release:", err)
				return
			}
			fmt.Println("served", at, token, n)
		})
		if j.Waiters == 1 {
			break
		}
		for queued := 0; queued <= n; { // the next one comes after this one
			st, err := s.State(ctx)
			if err != nil {
				return err
			}
			if queued = st.Waiting(); queued <= n {
				time.Sleep(100 * time.Microsecond)
			}
		}
	}
	all.Wait()
	return s.Close()
}

// crewChild is such a process.
type crewChild struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	said *bufio.Scanner
	done chan struct{} // closed when all it had to say was read
}

func startCrew(t testing.TB, j crewJob) *crewChild {
	words, err := json.Marshal(j)
	expect.OK(t, err)
	exe, err := os.Executable()
	expect.OK(t, err)
	c := &crewChild{cmd: exec.Command(exe), done: make(chan struct{})}
	c.cmd.Env = append(os.Environ(), crewEnv+"="+string(words))
	c.cmd.Stderr = os.Stderr
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	c.in, err = c.cmd.StdinPipe()
	expect.OK(t, err)
	out, err := c.cmd.StdoutPipe()
	expect.OK(t, err)
	expect.OK(t, c.cmd.Start())
	c.said = bufio.NewScanner(out)
	return c
}

// wait has the process's goroutines acquire, and passes on what they say.
func (c *crewChild) wait(t testing.TB, tell chan<- served) {
	if !c.said.Scan() || c.said.Text() != "ready" {
		t.Fatalf("a process that is to wait says %q", c.said.Text())
	}
	_, err := c.in.Write([]byte{'\n'})
	expect.OK(t, err)
	go func() {
		defer close(c.done)
		for c.said.Scan() {
			var at int64
			s := served{from: c}
			if n, _ := fmt.Sscanf(c.said.Text(), "served %d %d %d", &at, &s.token, &s.number); n != 3 {
				s.failed = c.said.Text()
			}
			s.at = time.Unix(0, at)
			tell <- s
		}
	}()
}

// end has the process end by itself, and says what it has used.
func (c *crewChild) end() (cpu time.Duration) {
	_ = c.in.Close()
	<-c.done
	_ = c.cmd.Wait()
	return c.cmd.ProcessState.UserTime() + c.cmd.ProcessState.SystemTime()
}

// memory is the most that the process has had at once, in bytes.
func (c *crewChild) memory() int {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.cmd.Process.Pid))
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); words[0] == "VmHWM:" {
			kib, _ := strconv.Atoi(words[1])
			return kib << 10
		}
	}
	return 0
}
