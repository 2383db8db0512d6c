//go:build unix

package fileengine_test

import (
	"net/url"
	"os"
	"testing"

	"sema"
	"sema/engine/enginetest"
	"sema/engine/fileengine"
)

func TestMain(m *testing.M) {
	if fileengine.PlayRole() {
		os.Exit(0)
	}
	enginetest.Main(m, func(u string) (sema.Engine, error) {
		parsed, err := url.Parse(u)
		if err != nil {
			return nil, err
		}
		return fileengine.New(parsed.Path, nil)
	})
}

func TestProcesses(t *testing.T) { enginetest.RunProcesses(t, open(t), 4) }
