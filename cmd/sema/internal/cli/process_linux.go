//go:build linux && (amd64 || arm64)

package cli

import (
	"os"
	"syscall"
	"time"

	"sema/cmd/sema/internal/guard"
)

// process is a running command, in the process group of sema, below a guard
// that ends it when sema cannot.
type process struct{ guarded *guard.Process }

// adopt takes the orphans below sema as its children.
func adopt() (stop func()) { return guard.Adopt() }

func startProcess(c command) (*process, error) {
	g, err := guard.Start(guard.Command{Path: c.path, Args: c.args, Env: c.env, Life: c.life, Ignore: c.ignore})
	if err != nil {
		return nil, err
	}
	return &process{g}, nil
}

func (p *process) events() <-chan guard.Event { return p.guarded.Events }

// signal passes on what was meant for sema alone.
func (p *process) signal(s os.Signal) {
	if n, ok := s.(syscall.Signal); ok {
		p.guarded.Signal(n)
	}
}

func (p *process) until(deadline time.Time) { p.guarded.Until(deadline) }
func (p *process) terminate()               { p.guarded.Terminate() }
func (p *process) kill()                    { p.guarded.Kill() }
func (p *process) close()                   { p.guarded.Close() }
