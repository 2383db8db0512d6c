package classic

import (
	"embed"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/*.lua
var files embed.FS

// All scripts answer 1 for yes and 0 for no.
var (
	lockAcquire      = script("lock_acquire")
	lockRelease      = script("lock_release")
	scriptedAcquire  = script("scripted_acquire")
	scriptedRefresh  = script("scripted_refresh")
	clocklessAcquire = script("clockless_acquire")
	clocklessRefresh = script("clockless_refresh")
)

func script(name string) *redis.Script {
	text, err := files.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err)
	}
	return redis.NewScript(string(text))
}
