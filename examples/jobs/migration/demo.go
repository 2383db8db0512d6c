//go:build unix

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"

	"sema"
	"sema/lab/local"
)

// standStill is a host that stops after the first step, until somebody lets it
// go on, and has a statement on its way then.
func standStill(ctx context.Context, sem *sema.Semaphore, database string, say func(string, ...any)) error {
	permit, err := sem.Acquire(ctx)
	if err != nil {
		return err
	}
	work := permit.Context(ctx)
	conn, err := connect(work, database)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err := carryOut(work, conn, permit.Token(), steps[0]); err != nil {
		return err
	}
	say("%s", steps[0].name)
	say("stands still")
	if err := syscall.Kill(os.Getpid(), syscall.SIGSTOP); err != nil {
		return err
	}
	<-work.Done()
	say("goes on, and stops: %v", context.Cause(work))
	_, err = carryOut(ctx, conn, permit.Token(), steps[1])
	say("%s, sent all the same: %v", steps[1].name, err)
	return nil
}

// demo has four hosts migrate.
func demo(ctx context.Context, out io.Writer) (err error) {
	rdb, err := local.Redis(ctx)
	if err != nil {
		return err
	}
	defer rdb.Stop()
	db, err := local.Postgres(ctx)
	if err != nil {
		return err
	}
	defer db.Stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	begin := func(name string, env ...string) (*process, error) {
		return start(ctx, append(env, "HOST="+name, "REDIS="+rdb.Address, "DATABASE="+db.Address))
	}

	first, err := begin("host 1", "STANDS_STILL=1")
	if err != nil {
		return err
	}
	defer func() { cancel(); _ = first.cmd.Wait() }()
	for range 2 { // a step, and that it stands still
		if err := first.line(out); err != nil {
			return err
		}
	}
	var others []*process
	for i := 2; i <= 4; i++ {
		p, err := begin(fmt.Sprint("host ", i))
		if err != nil {
			return err
		}
		defer func() { cancel(); _ = p.cmd.Wait() }()
		others = append(others, p)
		if i == 2 { // it has the permit now, and the next ones wait
			err = p.line(out)
		}
		if err != nil {
			return err
		}
	}
	for _, p := range others {
		if err := p.rest(out); err != nil {
			return err
		}
	}
	if err := first.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		return err
	}
	return first.rest(out)
}

// process is a host.
type process struct {
	cmd    *exec.Cmd
	prints *bufio.Reader
}

func start(ctx context.Context, env []string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env, cmd.Stderr = append(os.Environ(), env...), os.Stderr
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return &process{cmd, bufio.NewReader(pipe)}, cmd.Start()
}

// line passes on the next line that the process prints.
func (p *process) line(out io.Writer) error {
	line, err := p.prints.ReadString('\n')
	if err != nil {
		return errors.Join(err, p.cmd.Wait())
	}
	_, err = io.WriteString(out, line)
	return err
}

// rest passes on what the process prints until it ends.
func (p *process) rest(out io.Writer) error {
	_, err := io.Copy(out, p.prints)
	return errors.Join(err, p.cmd.Wait())
}
