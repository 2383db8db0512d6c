package classic

import (
	_ "embed"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed lua/lock_acquire.lua
	lockAcquireSrc string
	//go:embed lua/lock_release.lua
	lockReleaseSrc string
	//go:embed lua/scripted_acquire.lua
	scriptedAcquireSrc string
	//go:embed lua/scripted_refresh.lua
	scriptedRefreshSrc string
	//go:embed lua/clockless_acquire.lua
	clocklessAcquireSrc string
	//go:embed lua/clockless_refresh.lua
	clocklessRefreshSrc string
)

// All scripts answer 1 for yes and 0 for no.
var (
	lockAcquire      = redis.NewScript(lockAcquireSrc)
	lockRelease      = redis.NewScript(lockReleaseSrc)
	scriptedAcquire  = redis.NewScript(scriptedAcquireSrc)
	scriptedRefresh  = redis.NewScript(scriptedRefreshSrc)
	clocklessAcquire = redis.NewScript(clocklessAcquireSrc)
	clocklessRefresh = redis.NewScript(clocklessRefreshSrc)
)
