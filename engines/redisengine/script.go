package redisengine

import (
	"cmp"
	"context"
	_ "embed"
	"strings"
	"sync"

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
	//go:embed lua/rare.lua
	rareLua string
	//go:embed lua/keys.lua
	keysLua string
	//go:embed lua/last.lua
	lastLua string
	//go:embed lua/state.lua
	stateLua string
)

var stateScript = sync.OnceValue(func() *redis.Script { return redis.NewScript(wordsLua + stateLua) })

const wordsHere = "-- words\n"

// step is the script that carries out calls, and its hash, both strings.
var step = sync.OnceValues(func() (source, hash any) {
	text := meant(wordsLua, assembled(firstLua, plainLua, lastLua))
	return text, redis.NewScript(text).Hash()
})

// assembled is step in its order. The rules are the table R, made only when plain.lua could
// not do all, and some of them when they are looked for: making functions costs.
func assembled(first, plain, last string) string {
	return first + plain + wordsHere +
		"local function rare(R)\n" + rareLua + keysLua + "end\n" +
		"local function rules()\nlocal R\nR = {\n" + rulesLua + storeLua + "}\n" +
		"return setmetatable(R, {__index = function(_, name)\nsetmetatable(R, nil)\nrare(R)\nreturn R[name]\nend})\nend\n" + last
}

// meant is a script without the words that are a number or a string: what they mean stands in
// their place. Each would cost whenever the script runs, and again for each function that has it. The
// other words come where wordsHere is.
func meant(words, script string) string {
	values, others := map[string]string{}, ""
	for line := range strings.Lines(words) {
		names, rest, _ := strings.Cut(strings.TrimPrefix(line, "local "), " = ")
		if !strings.HasPrefix(line, "local ") {
			continue
		}
		for name := range strings.SplitSeq(names, ", ") {
			value := literal(rest)
			if value == "" {
				others += line
				break
			}
			values[name], rest = value, strings.TrimPrefix(rest[len(value):], ", ")
		}
	}
	script = strings.Replace(script, wordsHere, others, 1)
	// By hand: this is part of a program's first call.
	var b strings.Builder
	b.Grow(len(script))
	for from := 0; from < len(script); {
		to := from
		for to < len(script) && ofName(script[to]) {
			to++
		}
		if to == from {
			b.WriteByte(script[from])
			from++
			continue
		}
		b.WriteString(cmp.Or(values[script[from:to]], script[from:to]))
		from = to
	}
	return b.String()
}

// ofName reports whether a byte may be part of a name.
func ofName(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z'
}

// literal is the string or the number that a text begins with; "" if it is neither.
func literal(text string) string {
	end := 0
	if strings.HasPrefix(text, "'") {
		for end = 1; text[end] != '\''; end++ {
			if text[end] == '\\' {
				end++
			}
		}
		return text[:end+1]
	}
	for '0' <= text[end] && text[end] <= '9' || text[end] == '^' {
		end++
	}
	return text[:end]
}

// onceCmd is a command that go-redis does not send again by itself: what is
// repeated, and how, is for the client of the session to say.
type onceCmd struct{ *redis.StringCmd }

// NoRetry implements redis.Cmder.
func (onceCmd) NoRetry() bool { return true }

// The commands, as words of a call: made once, so that they cost no memory of their own.
var evalsha, eval any = "evalsha", "eval"

// runStep runs step once: by its hash, and whole if the server does not know
// it. The first two words are filled in.
func runStep(ctx context.Context, rdb redis.UniversalClient, words []any) (string, error) {
	source, hash := step()
	reply, err := send(ctx, rdb, words, evalsha, hash)
	if err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT") {
		return send(ctx, rdb, words, eval, source)
	}
	return reply, err
}

func send(ctx context.Context, rdb redis.UniversalClient, words []any, command, script any) (string, error) {
	words[0], words[1] = command, script
	cmd := onceCmd{redis.NewStringCmd(ctx, words...)}
	_ = rdb.Process(ctx, cmd) // cmd has the error
	return cmd.Result()
}
