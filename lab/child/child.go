// Package child has a program start itself again, in a role and with a job: the
// processes of tests that take several. A child is told by lines on its standard
// input, and tells by lines on its standard output. On Linux it dies with its
// parent.
package child

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
)

// env tells a process its role and its job.
const env = "SEMA_LAB_CHILD"

type part struct {
	Role string          `json:"role"`
	Job  json.RawMessage `json:"job"`
}

var roles = map[string]func(job []byte) error{}

// Role says what a process does that is started in a role. It is for before Play.
func Role[J any](name string, play func(job J) error) {
	roles[name] = func(words []byte) error {
		var job J
		if err := json.Unmarshal(words, &job); err != nil {
			return err
		}
		return play(job)
	}
}

// Play plays the role that this process was started in, and ends the process:
// with status 1 and words on standard error if that failed. In a process that was
// not started in a role it does nothing.
func Play() {
	words, ok := os.LookupEnv(env)
	if !ok {
		return
	}
	_ = os.Unsetenv(env) // what this process starts has no role
	var p part
	err := json.Unmarshal([]byte(words), &p)
	if err == nil {
		if play := roles[p.Role]; play != nil {
			err = play(p.Job)
		} else {
			err = fmt.Errorf("child: there is no role %q", p.Role)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

var orders = sync.OnceValue(func() *bufio.Reader { return bufio.NewReader(os.Stdin) })

// Order waits, in a child, for the next line of its parent's. The error is io.EOF
// when there are no more.
func Order() (string, error) {
	line, err := orders().ReadString('\n')
	return strings.TrimSuffix(line, "\n"), err
}

// Command is this program in a role, for Start.
func Command(role string, job any) (*exec.Cmd, error) {
	var p part
	self, err := os.Executable()
	if err == nil {
		p.Role = role
		p.Job, err = json.Marshal(job)
	}
	var words []byte
	if err == nil {
		words, err = json.Marshal(p)
	}
	if err != nil {
		return nil, fmt.Errorf("child: %w", err)
	}
	cmd := exec.Command(self)
	// Under the race detector a process would sleep for a second at its end.
	cmd.Env = append(os.Environ(), env+"="+string(words), "GORACE=atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	return cmd, nil
}

// Process is a child, seen from its parent.
type Process struct {
	cmd    *exec.Cmd
	orders io.WriteCloser
	words  words
	done   chan struct{}
	err    error // what it ended with, once done is closed
}

// Start starts a Command. Its standard error is this process's, unless the command
// has one.
func Start(cmd *exec.Cmd) (*Process, error) {
	p := &Process{cmd: cmd, done: make(chan struct{}), words: words{more: make(chan struct{})}}
	cmd.Stdout = &p.words
	if cmd.Stderr == nil {
		cmd.Stderr = os.Stderr
	}
	dieWithParent(cmd)
	var err error
	if p.orders, err = cmd.StdinPipe(); err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("child: %w", err)
	}
	go func() {
		p.err = cmd.Wait()
		p.words.end()
		close(p.done)
	}()
	return p, nil
}

// PID is the process's id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Order tells the process a line.
func (p *Process) Order(line string) error {
	_, err := io.WriteString(p.orders, line+"\n")
	return err
}

// Line waits for the next line that the process says. The error is io.EOF when it
// has ended, and said no more.
func (p *Process) Line(ctx context.Context) (string, error) {
	for {
		line, more, err := p.words.next()
		if more == nil {
			return line, err
		}
		select {
		case <-more:
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

// Said is all that the process has said so far. Its last line may not be whole.
func (p *Process) Said() []byte {
	p.words.mu.Lock()
	defer p.words.mu.Unlock()
	return p.words.text[:len(p.words.text):len(p.words.text)]
}

// Done is closed when the process has ended, and all it said was read.
func (p *Process) Done() <-chan struct{} { return p.done }

// State is how it ended, once Done is closed.
func (p *Process) State() *os.ProcessState { return p.cmd.ProcessState }

// Wait waits for the process's end. The error is an *exec.ExitError unless it
// ended well, or the context's if that was first.
func (p *Process) Wait(ctx context.Context) error {
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// End has no more orders for the process, and waits for its end.
func (p *Process) End(ctx context.Context) error {
	_ = p.orders.Close()
	return p.Wait(ctx)
}

// Kill kills the process, and waits until it is gone.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // unless it has ended
	<-p.done
}

// Signal sends it a signal.
func (p *Process) Signal(s os.Signal) error { return p.cmd.Process.Signal(s) }

// Stop has the process stand still until Continue. On Windows nothing can:
// errors.ErrUnsupported.
func (p *Process) Stop() error { return stop(p.cmd.Process) }

// Continue has it go on.
func (p *Process) Continue() error { return cont(p.cmd.Process) }

// Usage is what the process uses, or has used when it has ended. Only Linux tells:
// elsewhere the error is errors.ErrUnsupported.
func (p *Process) Usage() (Usage, error) {
	select {
	case <-p.done:
		return used(p.cmd.ProcessState)
	default:
		return uses(p.PID())
	}
}

// words are what a process says.
type words struct {
	mu    sync.Mutex
	text  []byte
	taken int           // by next
	more  chan struct{} // closed when there is more, or never more
	ended bool
}

// Write implements io.Writer.
func (w *words) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text = append(w.text, b...)
	close(w.more)
	w.more = make(chan struct{})
	return len(b), nil
}

func (w *words) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	close(w.more)
}

// next is the next line, or what is closed when there is more.
func (w *words) next() (line string, more <-chan struct{}, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	text, _, whole := bytes.Cut(w.text[w.taken:], []byte("\n"))
	switch {
	case whole:
		w.taken += len(text) + 1
		return string(text), nil, nil
	case w.ended:
		return "", nil, io.EOF
	}
	return "", w.more, nil
}
