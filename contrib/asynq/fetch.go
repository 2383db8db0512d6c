package semaasynq

import (
	"context"
	"strings"

	"github.com/redis/go-redis/v9"
)

// fetcher is the server's Redis, in which queues that are to be left alone look
// empty. asynq takes each task by a script, and has no hook before that.
type fetcher struct {
	redis.UniversalClient
	full func(queue string) bool
}

// EvalSha implements redis.Scripter.
func (f *fetcher) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	if queue, ok := takesFrom(keys); ok && f.full(queue) {
		cmd := redis.NewCmd(ctx)
		cmd.SetErr(redis.Nil)
		return cmd
	}
	return f.UniversalClient.EvalSha(ctx, sha, keys, args...)
}

// takesFrom is the queue from which a script with these keys takes a task. Of
// asynq's scripts only that one has the keys pending, paused, active and lease.
func takesFrom(keys []string) (queue string, ok bool) {
	if len(keys) != 4 {
		return "", false
	}
	base, ok := strings.CutSuffix(keys[0], ":pending")
	if !ok || keys[1] != base+":paused" || keys[2] != base+":active" || keys[3] != base+":lease" {
		return "", false
	}
	queue, ok = strings.CutPrefix(base, "asynq:{")
	if !ok {
		return "", false
	}
	return strings.CutSuffix(queue, "}")
}
