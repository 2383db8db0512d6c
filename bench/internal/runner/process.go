package runner

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"sema/bench/internal/peers"
	"sema/bench/internal/wire"
)

const (
	// readyTimeout bounds a driver's start; the first one of another language
	// may have to fetch and build itself.
	readyTimeout = 5 * time.Minute
	// slack is what a round may take beyond its time: a driver's grace, and
	// the answer on a busy machine.
	slack = 20 * time.Second
	// quitTimeout bounds how long a driver may take to end.
	quitTimeout = 10 * time.Second
)

// process is one driver.
type process struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan []byte // of its standard output; closed at the end
	done  chan struct{}
	stop  <-chan struct{} // closed when the run is broken off
}

// launchDriver starts a driver; ready waits for it.
func (r *Runner) launchDriver(ctx context.Context, p peers.Peer, s Scenario, name string) (*process, error) {
	args := []string{
		"--url", r.url, "--contestant", p.Name, "--name", name,
		"--limit", strconv.Itoa(s.Limit), "--workers", strconv.Itoa(s.Workers),
		"--hold-us", strconv.FormatInt(s.Hold.Microseconds(), 10),
		"--lease-ms", strconv.FormatInt(r.Lease.Milliseconds(), 10),
	}
	var cmd *exec.Cmd
	if p.Driver == "" {
		cmd = exec.Command(r.Self[0], append(r.Self[1:], args...)...)
	} else {
		cmd = exec.Command("./driver.sh", args...)
		cmd.Dir = filepath.Join(r.Drivers, p.Driver)
	}
	cmd.Stderr, cmd.SysProcAttr = os.Stderr, dieWithParent()
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		var path *fs.PathError
		if errors.As(err, &path) {
			err = path.Err // without the path: it goes into the results
		}
		return nil, fmt.Errorf("starting the driver: %w", err)
	}
	d := &process{cmd: cmd, in: in, lines: make(chan []byte, 1), done: make(chan struct{}), stop: ctx.Done()}
	go func() {
		scan := bufio.NewScanner(out)
		scan.Buffer(nil, 1<<20)
		for scan.Scan() {
			d.lines <- append([]byte(nil), scan.Bytes()...)
		}
		close(d.lines)
		_ = cmd.Wait()
		close(d.done)
	}()
	return d, nil
}

// hear waits for the driver's next line and reads it into v.
func (d *process) hear(v any, timeout time.Duration) error {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-d.stop:
		return errors.New("the run was broken off")
	case <-timer.C:
		return fmt.Errorf("the driver says nothing for %v", timeout)
	case line, ok := <-d.lines:
		if !ok {
			return errors.New("the driver ended without a word")
		}
		var failure wire.Failure
		if err := json.Unmarshal(line, &failure); err != nil {
			return fmt.Errorf("the driver says %.100q: %w", line, err)
		}
		if failure.Error != "" {
			return errors.New(failure.Error)
		}
		return json.Unmarshal(line, v)
	}
}

func (d *process) ready() (map[string]string, error) {
	var r wire.Ready
	if err := d.hear(&r, readyTimeout); err != nil {
		return nil, err
	}
	return r.Versions, nil
}

func (d *process) tell(c wire.Command) error {
	line, err := json.Marshal(c)
	if err == nil {
		_, err = d.in.Write(append(line, '\n'))
	}
	return err
}

// end asks the driver to end, and kills it if it does not.
func (d *process) end() {
	_ = d.tell(wire.Command{Quit: true}) // should it be dead already, so be it
	_ = d.in.Close()
	go func() { // nobody listens any more
		for range d.lines {
		}
	}()
	select {
	case <-d.done:
	case <-time.After(quitTimeout):
		_ = d.cmd.Process.Kill()
		<-d.done
	}
}
