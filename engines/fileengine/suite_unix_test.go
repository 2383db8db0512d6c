//go:build unix

package fileengine_test

import (
	"net/url"
	"testing"

	"sema"
	"sema/engines/fileengine"
	"sema/enginetest"
)

func TestMain(m *testing.M) {
	enginetest.Main(m, func(u string) (sema.Engine, error) {
		parsed, err := url.Parse(u)
		if err != nil {
			return nil, err
		}
		return fileengine.New(parsed.Path, nil)
	})
}

func TestProcesses(t *testing.T) {
	t.Parallel()
	enginetest.RunProcesses(t, open(t), 4)
}
