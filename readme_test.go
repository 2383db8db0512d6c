//go:build unix

package sema_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"sema/internal/fixture/expect"
	"sema/internal/fixture/pages"
)

// What pages link to is there, and so are the targets of make that README.md names.
func TestLinks(t *testing.T) {
	paths, err := filepath.Glob("docs/*.md")
	expect.OK(t, err)
	for _, more := range []string{"docs/data/*.md", "clients/*/README.md", "contrib/*/README.md"} {
		found, err := filepath.Glob(more)
		expect.OK(t, err)
		paths = append(paths, found...)
	}
	makefile, err := os.ReadFile("Makefile")
	expect.OK(t, err)
	link := regexp.MustCompile(`(?:\]\(|src="|srcset=")([^)"#: ]*)(#[^)" ]*)?[)" ]`)
	for _, page := range append(paths, "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "CODE_OF_CONDUCT.md") {
		text, err := os.ReadFile(page)
		expect.OK(t, err)
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			to := filepath.Join(filepath.Dir(page), m[1])
			if m[1] == "" {
				to = page
			}
			if there, err := os.ReadFile(to); err != nil && !errors.Is(err, syscall.EISDIR) {
				t.Errorf("%s links to %s: %v", page, m[1], err)
			} else if m[2] != "" && !slices.Contains(anchors(string(there)), m[2]) {
				t.Errorf("%s links to %s%s, and there is no such heading", page, m[1], m[2])
			}
		}
		if page != "README.md" {
			continue
		}
		for _, m := range regexp.MustCompile("`make ([a-z -]+)`").FindAllSubmatch(text, -1) {
			for target := range strings.FieldsSeq(string(m[1])) {
				if !bytes.Contains(makefile, []byte("\n"+target+":")) {
					t.Errorf("%s names make %s, and the Makefile has none", page, target)
				}
			}
		}
	}
}

// A page says below its title for whom it is, and then in short what to do.
func TestPages(t *testing.T) {
	paths, err := filepath.Glob("docs/*.md")
	expect.OK(t, err)
	head := regexp.MustCompile(`^(<!-- .* -->\n)?# .+\n\nFor [^|]*?\*\*In short:\*\*`)
	for _, page := range paths {
		text, err := os.ReadFile(page)
		expect.OK(t, err)
		if at := head.FindIndex(text); at == nil || at[1] > 600 {
			t.Errorf("%s does not begin with whom it is for, and what to do in short", page)
		}
	}
}

// A page of tables names what made or checks it: in its first line a target of the Makefile, or a command of go and
// its packages; or in each section the command that printed it.
func TestPagesOfData(t *testing.T) {
	paths, err := filepath.Glob("docs/data/*.md")
	expect.OK(t, err)
	if len(paths) == 0 {
		t.Fatal("docs/data has no pages")
	}
	makefile, err := os.ReadFile("Makefile")
	expect.OK(t, err)
	command := regexp.MustCompile(`(?m)^    (go|cd|make|bin/sema|scripts/\S+\.sh|SEMA_\w+=\S+)( .+)?$`)
	for _, page := range paths {
		text, err := os.ReadFile(page)
		expect.OK(t, err)
		if made := regexp.MustCompile("^<!-- Made by `make ([a-z-]+)").FindSubmatch(text); made != nil {
			if !bytes.Contains(makefile, []byte("\n"+string(made[1])+":")) {
				t.Errorf("%s is made by make %s, and the Makefile has none", page, made[1])
			}
			continue
		}
		if made := regexp.MustCompile("^<!-- (?:Made|Checked) by `go (?:run|test) ([^`]+)`").FindSubmatch(text); made != nil {
			for dir := range strings.FieldsSeq(string(made[1])) {
				if _, err := os.Stat(dir); err != nil {
					t.Errorf("%s is made by %s: %v", page, dir, err)
				}
			}
			continue
		}
		if !bytes.HasPrefix(text, []byte("<!-- Measured: each section names the command that printed its figures. -->\n")) {
			t.Errorf("%s does not begin with what made it", page)
		}
		for _, section := range strings.Split(string(text), "\n## ")[1:] {
			if !command.MatchString(section) {
				title, _, _ := strings.Cut(section, "\n")
				t.Errorf("%s names no command in the section %s", page, title)
			}
		}
	}
}

// anchors are what headings of a page can be linked as.
func anchors(page string) (all []string) {
	for _, m := range regexp.MustCompile("(?m)^#+ (.*)$").FindAllStringSubmatch(page, -1) {
		all = append(all, "#"+pages.Anchor(m[1]))
	}
	return all
}

// The changelog has the headings of keepachangelog.com, and each entry names its readers:
// "For …".
func TestChangelog(t *testing.T) {
	text, err := os.ReadFile("CHANGELOG.md")
	expect.OK(t, err)
	form := regexp.MustCompile(`^(# Changelog|## Unreleased|## \d+\.\d+\.\d+( - \d{4}-\d\d-\d\d)?|### (Added|Changed|Deprecated|Removed|Fixed|Security)|- For .*|[^#-].*|)\n$`)
	for line := range strings.Lines(string(text)) {
		if !form.MatchString(line) {
			t.Errorf("CHANGELOG.md: %q is not in the form that CONTRIBUTING.md says", line)
		}
	}
}
