package driver

import (
	"runtime"
	"runtime/debug"
	"strings"
)

// libraries are those whose versions a figure depends on.
var libraries = []string{
	"github.com/redis/go-redis/v9",
	"github.com/bsm/redislock",
	"github.com/go-redsync/redsync/v4",
	"golang.org/x/sync",
}

// Versions of Go and of the libraries in this program.
func Versions() map[string]string {
	versions := map[string]string{"go": strings.TrimPrefix(runtime.Version(), "go")}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return versions
	}
	for _, m := range info.Deps {
		for _, path := range libraries {
			if m.Path == path {
				versions[path] = strings.TrimPrefix(m.Version, "v")
			}
		}
	}
	return versions
}
