package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"
)

// The table stands between these lines of its page.
const (
	tableBegins = "<!-- made by: make servers -->\n"
	tableEnds   = "<!-- end of what make servers made -->\n"
)

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

// write puts the results into the page, in place of those it had.
func write(path string, results []result) error {
	page, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("table: %w", err)
	}
	changed, err := replaceTable(string(page), table(results, time.Now()))
	if err != nil {
		return fmt.Errorf("table: %s: %w", path, err)
	}
	if err := os.WriteFile(path, []byte(changed), 0o644); err != nil {
		return fmt.Errorf("table: %w", err)
	}
	return nil
}

func replaceTable(page, table string) (string, error) {
	before, rest, ok := strings.Cut(page, tableBegins)
	_, after, ends := strings.Cut(rest, tableEnds)
	if !ok || !ends {
		return "", fmt.Errorf("no lines %q and %q", tableBegins, tableEnds)
	}
	return before + tableBegins + table + tableEnds + after, nil
}

func table(results []result, now time.Time) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s, %s, %s/%s with %d cores. Passed and failed are tests with their subtests.\n\n",
		now.UTC().Format(time.DateOnly), runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
	b.WriteString("| server | suite | passed | failed | skipped | seconds |\n|---|---|---:|---:|---:|---:|\n")
	var failures strings.Builder
	for _, r := range results {
		for i, o := range r.outcomes {
			title := ""
			if i == 0 {
				title = r.title()
			}
			failed := fmt.Sprint(o.failed)
			if o.broken {
				failed = "broken"
			}
			fmt.Fprintf(&b, "| %s | %s | %d | %s | %d | %.0f |\n", title, o.suite, o.passed, failed, o.skipped, o.took.Seconds())
			for _, name := range o.failures {
				fmt.Fprintf(&failures, "- %s, %s: `%s`\n", r.title(), o.suite, name)
			}
		}
	}
	if failures.Len() > 0 {
		b.WriteString("\nWhat failed:\n\n" + failures.String())
	}
	b.WriteString("\n")
	return b.String()
}
