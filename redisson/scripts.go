package redisson

import (
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
)

// script is a Lua program as the server gets it.
type script struct {
	source, sha string
}

func newScript(parts ...string) *script {
	source := ""
	for _, p := range parts {
		source += p
	}
	sum := sha1.Sum([]byte(source))
	return &script{source: source, sha: hex.EncodeToString(sum[:])}
}

var (
	//go:embed lua/shared.lua
	sharedLua string
	//go:embed lua/timeouts.lua
	timeoutsLua string
	//go:embed lua/add.lua
	addLua string
	//go:embed lua/lifetime.lua
	lifetimeLua string
	//go:embed lua/counter_acquire.lua
	counterAcquireLua string
	//go:embed lua/counter_undo.lua
	counterUndoLua string
	//go:embed lua/counter_release.lua
	counterReleaseLua string
	//go:embed lua/counter_set.lua
	counterSetLua string
	//go:embed lua/counter_drain.lua
	counterDrainLua string
	//go:embed lua/counter_available.lua
	counterAvailableLua string
	//go:embed lua/expirable_acquire.lua
	expirableAcquireLua string
	//go:embed lua/expirable_undo.lua
	expirableUndoLua string
	//go:embed lua/expirable_release.lua
	expirableReleaseLua string
	//go:embed lua/expirable_renew.lua
	expirableRenewLua string
	//go:embed lua/expirable_lease.lua
	expirableLeaseLua string
	//go:embed lua/expirable_counts.lua
	expirableCountsLua string
	//go:embed lua/expirable_set.lua
	expirableSetLua string

	addScript      = newScript(sharedLua, addLua)
	lifetimeScript = newScript(sharedLua, lifetimeLua)

	counterAcquire   = newScript(sharedLua, counterAcquireLua)
	counterUndo      = newScript(sharedLua, counterUndoLua)
	counterRelease   = newScript(sharedLua, counterReleaseLua)
	counterSet       = newScript(sharedLua, counterSetLua)
	counterDrain     = newScript(sharedLua, counterDrainLua)
	counterAvailable = newScript(sharedLua, counterAvailableLua)

	expirableAcquire = newScript(sharedLua, timeoutsLua, expirableAcquireLua)
	expirableUndo    = newScript(sharedLua, timeoutsLua, expirableUndoLua)
	expirableRelease = newScript(sharedLua, timeoutsLua, expirableReleaseLua)
	expirableRenew   = newScript(sharedLua, timeoutsLua, expirableRenewLua)
	expirableLease   = newScript(sharedLua, timeoutsLua, expirableLeaseLua)
	expirableCounts  = newScript(sharedLua, timeoutsLua, expirableCountsLua)
	expirableSet     = newScript(sharedLua, timeoutsLua, expirableSetLua)
)
