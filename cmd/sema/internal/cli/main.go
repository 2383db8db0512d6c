// Package cli is the program sema: one file for each command, with its help
// beside it. Standard output carries only what was asked for; all else that
// the program has to say goes to standard error, one line each.
package cli

import (
	"context"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9/logging"
)

// Main runs the program with the given arguments (without its own name) and
// environment, and returns what Exit ends the process with: its exit code, or
// -n if it is to end by signal n. The command of "sema run" has the process's
// own standard streams.
func Main(ctx context.Context, args, env []string, stdin io.Reader, stdout, stderr io.Writer) int {
	logging.Disable() // go-redis: what matters comes as an error
	p := &program{args: args, env: env, stdin: stdin, stdout: stdout, stderr: stderr}
	root := p.root(args...)
	root.SetArgs(append([]string{}, args...)) // never nil, which would mean os.Args to cobra
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		err = p.wrongHelp
	}
	p.json = p.json || wantsJSON(args)
	return p.report(err)
}

// program is one run of sema.
type program struct {
	args   []string
	env    []string
	stdin  io.Reader
	stdout io.Writer
	stderr io.Writer

	url       string // as --url gave it
	json      bool
	wrongHelp error // --help was asked for what there is not

	mu      sync.Mutex // one line at a time
	secrets []string   // never printed, whatever an error may quote
}

// wantsJSON says whether --json is among the arguments: one that is wrong may
// keep the flags behind it from being read.
func wantsJSON(args []string) bool {
	if end := slices.Index(args, "--"); end >= 0 {
		args = args[:end]
	}
	return slices.Contains(args, "--json")
}

// getenv is the value of an environment variable, or "".
func (p *program) getenv(name string) string {
	for i := len(p.env) - 1; i >= 0; i-- {
		if value, ok := strings.CutPrefix(p.env[i], name+"="); ok {
			return value
		}
	}
	return ""
}
