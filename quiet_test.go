package sema_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sema/internal/fixture/expect"
)

// go-redis writes dozens of lines a minute to standard error while a server is away. Each
// program that makes a client of it says what becomes of them, and each page that shows one
// names the section of docs/redis.md that does.
func TestProgramsQuietGoRedis(t *testing.T) {
	makes, quiets := map[string]bool{}, map[string]bool{}
	client, section := regexp.MustCompile(`redis\.New\w*Client\(`), "redis.md#what-go-redis-logs"
	for _, root := range []string{"README.md", "docs", "examples", "cmd"} {
		expect.OK(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			what := filepath.Dir(path)
			switch filepath.Ext(path) {
			case ".md":
				what = path
				quiets[what] = path == filepath.Join("docs", "redis.md") || strings.Contains(string(text), section)
			case ".go":
				quiets[what] = quiets[what] || regexp.MustCompile(`logging\.Disable\(\)|redis\.SetLogger\(`).Match(text)
			default:
				return err
			}
			makes[what] = makes[what] || client.Match(text)
			return err
		}))
	}
	programs := 0
	for what, does := range makes {
		if does {
			programs++
			if !quiets[what] {
				t.Errorf("%s makes a client of go-redis, and does not say what becomes of its lines", what)
			}
		}
	}
	if programs < 8 {
		t.Errorf("only %d programs and pages found", programs)
	}
}
