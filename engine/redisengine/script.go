package redisengine

import (
	"context"
	_ "embed"
	"strings"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed lua/words.lua
	wordsLua string
	//go:embed lua/first.lua
	firstLua string
	//go:embed lua/plain.lua
	plainLua string
	//go:embed lua/rules.lua
	rulesLua string
	//go:embed lua/store.lua
	storeLua string
	//go:embed lua/keys.lua
	keysLua string
	//go:embed lua/last.lua
	lastLua string
	//go:embed lua/state.lua
	stateLua string
)

// The rules are the table R, made only when plain.lua could not do all: making
// functions costs.
var (
	stepSource  = wordsLua + firstLua + plainLua + "local function rules()\nlocal R\nR = {\n" + rulesLua + storeLua + "}\nreturn R\nend\nlocal function with_keys(R)\n" + keysLua + "end\n" + lastLua
	stepHash    = redis.NewScript(stepSource).Hash()
	stateScript = redis.NewScript(wordsLua + stateLua)
)

// onceCmd is a command that go-redis does not send again by itself: what is
// repeated, and how, is for the client of the session to say.
type onceCmd struct{ *redis.StringCmd }

// NoRetry implements redis.Cmder.
func (onceCmd) NoRetry() bool { return true }

// runStep runs step once: by its hash, and whole if the server does not know
// it. The first two words are filled in.
func runStep(ctx context.Context, rdb redis.UniversalClient, words []any) (string, error) {
	reply, err := send(ctx, rdb, words, "evalsha", stepHash)
	if err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT") {
		return send(ctx, rdb, words, "eval", stepSource)
	}
	return reply, err
}

func send(ctx context.Context, rdb redis.UniversalClient, words []any, command, script string) (string, error) {
	words[0], words[1] = command, script
	cmd := onceCmd{redis.NewStringCmd(ctx, words...)}
	_ = rdb.Process(ctx, cmd) // cmd has the error
	return cmd.Result()
}
