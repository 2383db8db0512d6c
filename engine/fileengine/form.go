package fileengine

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"sema/engine"
)

// The form of a log is how it is laid out and what a record in it does. A release reads the
// forms from oldestForm to newestForm, and writes the newest one that all programs know
// which were in the directory lately. So releases share a directory until the older one
// has gone, and may come back: see docs/compatibility.md.
const (
	oldestForm = 5
	newestForm = 5

	// knownFor is for how long after its last sign a program counts as one that may come
	// back. A program that is in use gives a sign every touchEvery.
	knownFor = 2 * touchEvery

	formWords = "sema log "
	signWord  = "form"
	maxForm   = 64 // bytes of the line
)

// formError says that a log is in a form that this release does not know. Whoever wrote
// it may let go of it, or write another one.
type formError struct {
	form    int
	release string // "": not known
}

func (e *formError) Error() string {
	by := ""
	if e.release != "" {
		by = " by sema " + e.release
	}
	return fmt.Sprintf("the log was written in form %d%s; this is sema %s, which knows form %s", e.form, by, engine.Version, formsKnown())
}

func formsKnown() string {
	if oldestForm == newestForm {
		return strconv.Itoa(newestForm)
	}
	return fmt.Sprintf("%d to %d", oldestForm, newestForm)
}

// formLine begins a log: its form, and the release that wrote it.
func formLine(form int) string {
	return formWords + strconv.Itoa(form) + " " + engine.Version + "\n"
}

// readForm reads the line that begins a log. A form of 0 says that there is none.
func readForm(b []byte) (form int, release string, rest []byte) {
	line, rest, whole := bytes.Cut(b[:min(len(b), maxForm)], []byte("\n"))
	words, ok := strings.CutPrefix(string(line), formWords)
	if !whole || !ok {
		return 0, "", nil
	}
	number, release, _ := strings.Cut(words, " ")
	form, err := strconv.Atoi(number)
	if err != nil || form <= 0 || engine.ValidateText("release", release, maxForm) != nil {
		return 0, "", nil
	}
	return form, release, b[len(b[:min(len(b), maxForm)])-len(rest):]
}

// signOf is a file that is touched by programs which know no later form than this.
func (e *Engine) signOf(form int) string { return e.path(signWord + strconv.Itoa(form)) }

// sign says that this program is here, and what it knows. Without the sign others may
// write what it cannot read, and then it waits until it is seen: so no error is one.
func (e *Engine) sign() {
	path := e.signOf(e.newest)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|noFollow, e.mode)
	if err != nil {
		return
	}
	if e.options.Shared {
		_ = f.Chmod(e.mode) // whatever the umask
	}
	_ = f.Close()
	now := time.Now()
	_ = os.Chtimes(path, now, now)
}

// form is the one to write.
func (e *Engine) form() int {
	for form := oldestForm; form < e.newest; form++ {
		if info, err := os.Lstat(e.signOf(form)); err == nil && time.Since(info.ModTime()).Abs() < knownFor {
			return form
		}
	}
	return e.newest
}
