package peers

import (
	"math"
	"time"

	"github.com/go-redsync/redsync/v4"
)

// Baseline is the contestant that all others are compared with where a Redis
// is involved, MemoryBaseline within one process.
const (
	Baseline       = "sema"
	MemoryBaseline = "sema-memory"
)

// classicPause is how callers wait for a semaphore that only tries.
const classicPause = "only tries: a caller who has to wait asks again after 1 ms, as the book's own lock does; "

// All contestants, in the order of the tables.
var All = []Peer{
	{
		Name: "sema", Kind: Semaphore, What: "`sema` with `engine/redisengine`",
		Settings: "defaults",
		Lacks:    "–",
		open:     openSema,
	},
	{
		Name: "classic-lock", Kind: Lock, What: "`sema/classic`.`Lock` (*Redis in Action*, 6.2.5 and 11.2.2)",
		Settings: "`Lua`; polls each ms by itself",
		Lacks:    "no fairness, no renewal, no notice of loss",
		open:     openClassic(steady, newLock),
	},
	{
		Name: "classic-basic", Kind: Semaphore, What: "`sema/classic`.`Basic` (6.3.1)",
		Settings: classicPause + "defaults",
		Lacks:    "the limit, when two callers overlap or clocks differ; fairness, renewal, notice of loss",
		open:     openClassic(steady, newBasic),
	},
	{
		Name: "classic-fair", Kind: Semaphore, What: "`sema/classic`.`Fair` (6.3.2)",
		Settings: classicPause + "defaults",
		Lacks:    "the limit, when two callers overlap; waiters have no place in line; renewal by hand, no notice of loss",
		open:     openClassic(steady, newFair),
	},
	{
		Name: "classic-locked", Kind: Semaphore, What: "`sema/classic`.`Locked` (6.3.4)",
		Settings: classicPause + "`Lua`",
		Lacks:    "the limit, when clocks differ by more than a lease's spare time; waiters have no place in line; renewal by hand, no notice of loss",
		open:     openClassic(steady, newLocked),
	},
	{
		Name: "classic-scripted", Kind: Semaphore, What: "`sema/classic`.`Scripted` (11.2.3): the book's semaphore in Lua, one EVALSHA to acquire and one ZREM to release on a plain go-redis pool",
		Settings: classicPause + "defaults",
		Lacks:    "the limit, when clocks differ by more than a lease's spare time; waiters have no place in line; renewal by hand, no notice of loss",
		open:     openClassic(steady, newScripted),
	},
	{
		Name: "classic-scripted-backoff", Kind: Semaphore, What: "the same",
		Settings: "a caller who has to wait asks again after 1 ms, then 2, 4, 8 and 16 ms, each less a random part of up to half",
		Lacks:    "as `classic-scripted`",
		open:     openClassic(backoff, newScripted),
	},
	{
		Name: "classic-clockless", Kind: Semaphore, What: "`sema/classic`.`Clockless`",
		Settings: classicPause + "`Lua`",
		Lacks:    "waiters have no place in line; renewal by hand, no notice of loss",
		open:     openClassic(steady, newClockless),
	},
	{
		Name: "redisson-go-semaphore", Kind: Semaphore, What: "`sema/redisson`.`Semaphore`: RSemaphore in Go",
		Settings: "defaults",
		Lacks:    "leases: the permits of a dead process are gone for good; no fairness among processes",
		open:     openCounter,
	},
	{
		Name: "redisson-go-permit", Kind: Semaphore, What: "`sema/redisson`.`ExpirableSemaphore`: RPermitExpirableSemaphore in Go",
		Settings: "defaults",
		Lacks:    "renewal, notice of loss; no fairness among processes",
		open:     openPermit,
	},
	{
		Name: "redisson-semaphore", Kind: Semaphore, What: "Redisson (Java), `RSemaphore`",
		Settings: "defaults, a thread for each worker",
		Lacks:    "leases: the permits of a dead process are gone for good; fairness",
		Driver:   "java", Needs: []string{"java", "mvn"},
	},
	{
		Name: "redisson-permit", Kind: Semaphore, What: "Redisson (Java), `RPermitExpirableSemaphore`",
		Settings: "defaults, a thread for each worker",
		Lacks:    "renewal, notice of loss, fairness; leases go by the callers' clocks",
		Driver:   "java", Needs: []string{"java", "mvn"},
	},
	{
		Name: "redisson-lock", Kind: Lock, What: "Redisson (Java), `RLock`",
		Settings: "a lease, so without the watchdog that would renew; a thread for each worker",
		Lacks:    "fairness, notice of loss",
		Driver:   "java", Needs: []string{"java", "mvn"},
	},
	{
		Name: "redisson-fair-lock", Kind: Lock, What: "Redisson (Java), fair `RLock`",
		Settings: "as `redisson-lock`",
		Lacks:    "notice of loss",
		Driver:   "java", Needs: []string{"java", "mvn"},
	},
	{
		Name: "node-redis-semaphore", Kind: Semaphore, What: "npm `redis-semaphore`, `Semaphore` on ioredis",
		Settings: "no end to waiting; else defaults: asks again every 10 ms, renews by itself; one thread, its timers have whole milliseconds",
		Lacks:    "fairness; the limit, when clocks differ by more than a lease's spare time",
		Driver:   "node", Needs: []string{"node", "npm"},
	},
	{
		Name: "redislock", Kind: Lock, What: "github.com/bsm/redislock",
		Settings: "`LinearBackoff(1 ms)` without an end; its default is not to wait at all",
		Lacks:    "fairness, renewal by itself, notice of loss",
		open:     openRedislock,
	},
	{
		Name: "redsync", Kind: Lock, What: "github.com/go-redsync/redsync/v4, one server",
		Settings: "defaults: asks again after 50 to 250 ms, 32 times; then from the start",
		Lacks:    "fairness, renewal by itself, notice of loss",
		open:     openRedsync(),
	},
	{
		Name: "redsync-1ms", Kind: Lock, What: "the same",
		Settings: "`WithRetryDelay(1 ms)`, without an end",
		Lacks:    "as `redsync`",
		open:     openRedsync(redsync.WithRetryDelay(time.Millisecond), redsync.WithTries(math.MaxInt)),
	},
	{
		Name: "noop-pool", Kind: Yardstick, What: "`EVALSHA` of `return 1` to acquire, another to release, on a plain go-redis pool",
		Settings: "defaults",
		Lacks:    "everything: it limits nothing",
		open:     openNoop,
	},
	{
		Name: "noop-autopipeline", Kind: Yardstick, What: "the same through go-redis's automatic pipelining",
		Settings: "`AutoPipeline()`, the blocking face, as it comes",
		Lacks:    "everything: it limits nothing",
		open:     openNoopPipeline,
	},
	{
		Name: "sema-memory", Kind: InProcess, Pairs: memoryPairs, What: "`sema` with `engine/memengine`",
		Settings: "defaults",
		Lacks:    "other processes",
		open:     openMemory,
	},
	{
		Name: "x-sync", Kind: InProcess, Pairs: memoryPairs, What: "golang.org/x/sync/semaphore, `Weighted`",
		Settings: "–",
		Lacks:    "leases, notice of loss, names, a view of who holds and waits",
		open:     openWeighted,
	},
	{
		Name: "channel", Kind: InProcess, Pairs: memoryPairs, What: "a buffered channel, with a `select` on the caller's context",
		Settings: "–",
		Lacks:    "weights, and all that `x-sync` lacks",
		open:     openChannel,
	},
}
