package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sema/internal/fixture/expect"
)

// Each command and each topic has a page, and a table stays a table there.
func TestPages(t *testing.T) {
	dir := t.TempDir()
	expect.OK(t, write(dir))
	for page, line := range map[string]string{
		"sema":             "redis://host:6379/0                 all hosts that reach this Redis or Valkey",
		"sema-exit-codes":  "74     standard output cannot be written",
		"sema-engines":     "sema serve; https:// with TLS",
		"sema-run-details": "SEMA_LIMIT   the limit as stored",
		"sema-show":        "paused (no permits are granted), used, free (weights)",
		"sema-ping":        "risk     sema works, but can lose permits or speed",
	} {
		text, err := os.ReadFile(filepath.Join(dir, page+".1"))
		if err != nil {
			t.Error(err)
			continue
		}
		before, after, found := strings.Cut(string(text), line)
		if !found || strings.LastIndex(before, ".EX") <= strings.LastIndex(before, ".EE") || !strings.Contains(after, ".EE") {
			t.Errorf("%s has no block with %q:\n%s", page, line, text)
		}
		if topic := page == "sema-exit-codes" || page == "sema-engines" || page == "sema-run-details"; topic == strings.Contains(string(text), ".SH OPTIONS") {
			t.Errorf("%s: a topic with options, or a command without:\n%s", page, text)
		}
	}
	main, err := os.ReadFile(filepath.Join(dir, "sema.1"))
	if err != nil || !strings.Contains(string(main), "Topics: sema-engines(1), sema-exit-codes(1)") {
		t.Errorf("sema.1 names no topics: %v", err)
	}
}
