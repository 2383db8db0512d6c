// Command skewplot puts the committed measurements of package classic into
// docs/data/classic.md: the tables, and the picture of over-admission against clock
// skew. Run it at the root of the repository after
//
//	go test ./classic -run 'TestOverAdmission|TestRoundTrips' -update
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"

	"sema/classic/internal/measured"
)

func main() {
	page := flag.String("page", "docs/data/classic.md", "page whose tables are replaced")
	picture := flag.String("svg", "docs/classic-skew.svg", "picture to write")
	flag.Parse()
	if err := run(*page, *picture); err != nil {
		fmt.Fprintln(os.Stderr, "skewplot:", err)
		os.Exit(1)
	}
}

func run(page, picture string) error {
	skew, err := measured.ReadSkew()
	if err != nil {
		return err
	}
	trips, err := measured.ReadRoundTrips()
	if err != nil {
		return err
	}
	if err := os.WriteFile(picture, []byte(draw(skew)), 0o644); err != nil {
		return err
	}
	old, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	text, err := fill(string(old), map[string]string{
		"roundtrips": roundTrips(trips),
		"skew":       spread(skew),
		"near":       near(skew),
	})
	if err != nil {
		return err
	}
	return os.WriteFile(page, []byte(text), 0o644)
}

// fill replaces what stands between the marks of each block.
func fill(text string, blocks map[string]string) (string, error) {
	for name, block := range blocks {
		begin, end := "<!-- measured: "+name+" -->\n", "<!-- end: "+name+" -->\n"
		before, rest, ok1 := strings.Cut(text, begin)
		_, after, ok2 := strings.Cut(rest, end)
		if !ok1 || !ok2 {
			return "", fmt.Errorf("the page has no place for %q: %s… %s", name, begin, end)
		}
		text = before + begin + block + end + after
	}
	return text, nil
}
