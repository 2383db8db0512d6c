package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"
)

// begins and ends are the lines around what is known of a server in the page, so
// that a run on one server leaves the others' results alone.
func begins(server string) string { return "<!-- made by make servers: " + server + " -->\n" }
func ends(server string) string   { return "<!-- end of " + server + " -->\n" }

// result is what all suites came to on one server.
type result struct {
	server   string // as fetch-server.sh calls it
	version  string // as the server says
	outcomes []outcome
}

func (r result) title() string {
	if r.version == "" {
		return r.server
	}
	return r.version
}

// write puts the results into the page, in place of those it had of the servers.
func write(path string, results []result) error {
	page, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("table: %w", err)
	}
	text := string(page)
	for _, r := range results {
		if text, err = replace(text, r.server, r.section(time.Now())); err != nil {
			return fmt.Errorf("table: %s: %w", path, err)
		}
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return fmt.Errorf("table: %w", err)
	}
	return nil
}

// replace gives the page with another section on the server.
func replace(page, server, section string) (string, error) {
	before, rest, ok := strings.Cut(page, begins(server))
	_, after, ended := strings.Cut(rest, ends(server))
	if !ok || !ended {
		return "", fmt.Errorf("no lines %q and %q", begins(server), ends(server))
	}
	return before + begins(server) + section + ends(server) + after, nil
}

func (r result) section(now time.Time) string {
	var b strings.Builder
	fmt.Fprintf(&b, "## %s\n\n%s, %s, %s/%s with %d cores.\n\n", r.title(),
		now.UTC().Format(time.DateOnly), runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
	b.WriteString("| suite | passed | failed | skipped | seconds |\n|---|---:|---:|---:|---:|\n")
	var failures strings.Builder
	for _, o := range r.outcomes {
		failed := fmt.Sprint(o.failed)
		if o.broken {
			failed = "broken"
		}
		fmt.Fprintf(&b, "| %s | %d | %s | %d | %.0f |\n", o.suite, o.passed, failed, o.skipped, o.took.Seconds())
		for _, name := range o.failures {
			fmt.Fprintf(&failures, "- %s: `%s`\n", o.suite, name)
		}
	}
	if failures.Len() > 0 {
		b.WriteString("\nWhat failed:\n\n" + failures.String())
	}
	b.WriteString("\n")
	return b.String()
}
