package redisson

import (
	"embed"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/*.lua
var files embed.FS

// script is a Lua program as the server gets it.
type script struct {
	source, sha string
}

// newScript puts files together.
func newScript(names ...string) *script {
	source := ""
	for _, name := range names {
		text, err := files.ReadFile("lua/" + name + ".lua")
		if err != nil {
			panic(err)
		}
		source += string(text)
	}
	return &script{source: source, sha: redis.NewScript(source).Hash()}
}

var (
	addScript      = newScript("shared", "add")
	lifetimeScript = newScript("shared", "lifetime")

	counterAcquire   = newScript("shared", "counter_acquire")
	counterUndo      = newScript("shared", "counter_undo")
	counterRelease   = newScript("shared", "counter_release")
	counterSet       = newScript("shared", "counter_set")
	counterDrain     = newScript("shared", "counter_drain")
	counterAvailable = newScript("shared", "counter_available")

	expirableAcquire = newScript("shared", "timeouts", "expirable_acquire")
	expirableUndo    = newScript("shared", "timeouts", "expirable_undo")
	expirableRelease = newScript("shared", "timeouts", "expirable_release")
	expirableRenew   = newScript("shared", "timeouts", "expirable_renew")
	expirableLease   = newScript("shared", "timeouts", "expirable_lease")
	expirableCounts  = newScript("shared", "timeouts", "expirable_counts")
	expirableSet     = newScript("shared", "timeouts", "expirable_set")
)
