//go:build interop

package interop

import (
	"os"
	"strings"
	"testing"

	"sema/internal/fixture/redistest"
)

// The table of methods must name every method that the Java types declare, each
// under the heading of its type.
func TestDocsNameEveryJavaMethod(t *testing.T) {
	page, err := os.ReadFile("../../docs/data/redisson.md")
	must(t, err)
	sections := map[string]string{}
	for section := range strings.SplitSeq(string(page), "\n## ") {
		title, text, _ := strings.Cut(section, "\n")
		sections[strings.TrimPrefix(title, "java.util.concurrent.")] = text
	}
	j := startJava(t, "single", redistest.Start(t).Addr())
	for _, m := range j.methods {
		kind, method, _ := strings.Cut(m, ".")
		if !strings.Contains(sections[kind], "| `"+method+"` |") {
			t.Errorf("docs/data/redisson.md lacks %s", m)
		}
	}
	report.did("methods of the Java types that the table in the docs names", byJava, len(j.methods))
}
