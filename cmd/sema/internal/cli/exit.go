package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"unicode"

	"sema"
	"sema/engine"
)

// The exit codes beside those of the command that "sema run" runs. Most are
// those of sysexits.h.
const (
	exitOK            = 0
	exitAbsent        = 1  // there is no such semaphore
	exitUsage         = 64 // the call makes no sense, or its values are out of range
	exitUnreachable   = 69 // the engine cannot be reached, or refused the call
	exitOutput        = 74 // standard output cannot be written
	exitConflict      = 75 // no permit in time
	exitLost          = 76 // the permit was lost, or there is no such permit
	exitNotExecutable = 126
	exitNotFound      = 127
	exitSignal        = 128 // plus the number of the signal
)

// exit ends the program with a code, and an error to be printed, if any.
type exit struct {
	code int // -n: by signal n
	err  error
}

func (e *exit) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", shellCode(e.code))
	}
	return e.err.Error()
}

func (e *exit) Unwrap() error { return e.err }

// bySignal ends the program by a signal.
func bySignal(s os.Signal) *exit {
	return &exit{code: -int(s.(syscall.Signal))}
}

// shellCode is what a shell makes of a code of Main: 128+n for signal n.
func shellCode(code int) int {
	if code < 0 {
		return exitSignal - code
	}
	return code
}

// Exit ends the process with a code that Main returned: -n means by signal n,
// as a command would have ended that got it.
func Exit(code int) {
	if code < 0 {
		die(syscall.Signal(-code))
	}
	os.Exit(shellCode(code))
}

// usageError is a call that makes no sense.
type usageError struct {
	text string
	try  string
}

func (e *usageError) Error() string { return e.text }

func usage(try, format string, args ...any) error {
	return &usageError{text: fmt.Sprintf(format, args...), try: try}
}

// report prints an error, if it has anything to say, and gives its exit code.
func (p *program) report(err error) int {
	if err == nil {
		return exitOK
	}
	code, try := p.sortError(err)
	if e, ok := errors.AsType[*exit](err); ok && e.err == nil {
		return code
	}
	if p.json {
		text, _ := engine.WithoutHint(err)
		line, _ := json.Marshal(errorJSON{p.clean(text), p.clean(try), shellCode(code)}) // two texts and a number
		p.writeLine(string(line))
		return code
	}
	p.say("%s", p.failure(err))
	return code
}

// failure is an error in words, and a hint.
func (p *program) failure(err error) string {
	text, _ := engine.WithoutHint(err)
	if _, try := p.sortError(err); try != "" {
		text = strings.TrimSuffix(text, ".") + ". Try: " + try
	}
	return p.clean(text)
}

// sortError gives an error's exit code, and what to try.
func (p *program) sortError(err error) (code int, try string) {
	var coded *exit
	var badUsage *usageError
	var argument *sema.ArgumentError
	var weight *sema.WeightError
	var limit *sema.LimitError
	var failure *engine.Error
	switch {
	case errors.As(err, &coded):
		if coded.err != nil {
			_, try = p.sortError(coded.err)
		}
		return coded.code, try
	case errors.As(err, &badUsage):
		return exitUsage, badUsage.try
	case errors.As(err, &argument):
		return exitUsage, ""
	case errors.As(err, &weight):
		words := []string{quote(weight.Name)}
		if weight.Key != "" {
			words = append(words, "--key", quote(weight.Key.String()))
		}
		if weight.Pool != "" {
			return exitUsage, p.command("limit", append(words, "--pool", weight.Pool+"=N")...) + ", with a larger N"
		}
		return exitUsage, p.command("limit", append(words, "N")...) + ", with a larger N"
	case errors.As(err, &limit):
		return exitUsage, p.command("limit", limitWords(limit)...)
	case errors.Is(err, sema.ErrBusy):
		return exitConflict, ""
	case errors.Is(err, sema.ErrLost):
		return exitLost, ""
	case errors.As(err, &failure):
		return exitUnreachable, failure.Hint
	}
	return exitUnreachable, ""
}

// say prints one line of ours to standard error.
func (p *program) say(format string, args ...any) {
	p.writeLine("sema: " + p.clean(fmt.Sprintf(format, args...)))
}

// writeLine prints a line to standard error.
func (p *program) writeLine(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, _ = fmt.Fprintln(p.stderr, line)
}

// errorJSON is an error for programs. It is a contract, like what goes to
// standard output.
type errorJSON struct {
	Error string `json:"error"`
	Try   string `json:"try"`
	Code  int    `json:"exit_code"`
}

// clean makes a text fit to be printed: one line, no secrets, and without the
// word with which the library's errors begin.
func (p *program) clean(text string) string {
	text = strings.TrimPrefix(strings.ReplaceAll(text, ": sema: ", ": "), "sema: ")
	for _, secret := range p.secrets {
		if !slices.Contains(p.args, secret) { // to hide a name would say that it is the secret
			text = strings.ReplaceAll(text, secret, "…")
		}
	}
	return printable(text, 1000)
}

// printable makes one line of limited length of a text that may quote what
// somebody else wrote: nothing in it moves the cursor.
func printable(text string, most int) string {
	var b strings.Builder
	n := 0
	for _, r := range strings.TrimSpace(text) {
		if n++; n > most {
			b.WriteString("…")
			break
		}
		switch {
		case r == '\n' || r == '\t':
			r = ' '
		case !unicode.IsPrint(r):
			r = unicode.ReplacementChar
		}
		b.WriteRune(r)
	}
	return b.String()
}

// quote makes one word of a shell command of a text.
func quote(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:@%+=,…", r)
	}
	if s != "" && !strings.ContainsFunc(s, func(r rune) bool { return !plain(r) }) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
