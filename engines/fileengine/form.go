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

// The form of a log is its layout together with the meaning of its records. A release
// reads the forms from oldestForm to newestForm. It writes the newest form that all
// programs can read which used the directory lately. So two releases can share a
// directory during an upgrade and after its reversal: see docs/compatibility.md.
const (
	oldestForm = 5
	newestForm = 5

	// knownFor is how long a program that has touched its form's file counts as present.
	// A program in use touches the file every touchEvery.
	knownFor = 2 * touchEvery

	formWords  = "sema log "
	formPrefix = "form"
	maxForm    = 64 // bytes of the line
)

// formError says that this release cannot read the form of a log. The error is temporary:
// the other program may stop using the semaphore, or write the log in another form.
type formError struct {
	form    int
	release string // "": unknown
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

// formLine is the first line of a log: its form and the release that wrote it.
func formLine(form int) string {
	return formWords + strconv.Itoa(form) + " " + engine.Version + "\n"
}

// readForm reads the first line of a log. form is 0 if the line is not valid.
func readForm(b []byte) (form int, release string, rest []byte) {
	end := bytes.IndexByte(b[:min(len(b), maxForm)], '\n')
	words, ok := strings.CutPrefix(string(b[:max(0, end)]), formWords)
	if !ok {
		return 0, "", nil
	}
	number, release, _ := strings.Cut(words, " ")
	form, err := strconv.Atoi(number)
	if err != nil || form <= 0 || engine.ValidateText("release", release, maxForm) != nil {
		return 0, "", nil
	}
	return form, release, b[end+1:]
}

// formFile is the path of the file that is touched by programs whose newest form is form.
func (e *Engine) formFile(form int) string { return e.path(formPrefix + strconv.Itoa(form)) }

// announceForm shows other programs which forms this one can read. Errors do no harm: other
// programs may then write a form that this one cannot read, and it tries again until
// they see its file.
func (e *Engine) announceForm() {
	_ = e.touch(e.formFile(e.newest))
}

// form is the form in which to write logs.
func (e *Engine) form() int {
	for form := oldestForm; form < e.newest; form++ {
		if info, err := os.Lstat(e.formFile(form)); err == nil && time.Since(info.ModTime()).Abs() < knownFor {
			return form
		}
	}
	return e.newest
}
