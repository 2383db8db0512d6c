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

const wordsPlace = "-- words\n"

// step returns the script that carries out calls, and its hash. Both are
// strings.
var step = sync.OnceValues(func() (source, hash any) {
	text := inlined(wordsLua, assemble(firstLua, plainLua, lastLua))
	return text, redis.NewScript(text).Hash()
})

// assemble puts the parts of the script in order. The rules are the fields of table R.
// Making functions costs, so R is made only for a call that plain.lua could not carry out.
// The fields of rare.lua and keys.lua are made at the first use of one.
func assemble(first, plain, last string) string {
	return first + plain + wordsPlace +
		"local function rare(R)\n" + rareLua + keysLua + "end\n" +
		"local function rules()\nlocal R\nR = {\n" + rulesLua + storeLua + "}\n" +
		"return setmetatable(R, {__index = function(_, name)\nsetmetatable(R, nil)\nrare(R)\nreturn R[name]\nend})\nend\n" + last
}

// inlined replaces each constant of words that is a number or a string by its value. A Lua local
// would cost whenever the script runs, and again for each function that uses it. The other
// definitions of words go to wordsPlace in script.
func inlined(words, script string) string {
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
	script = strings.Replace(script, wordsPlace, others, 1)
	// No regular expression: this is part of a program's first call, and
	// compiling one takes time.
	var b strings.Builder
	b.Grow(len(script))
	for from := 0; from < len(script); {
		to := from
		for to < len(script) && isNameByte(script[to]) {
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

// isNameByte reports whether a byte may be part of a name.
func isNameByte(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z'
}

// literal returns the string or number that text begins with; "" if it begins with
// neither.
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

// onceCmd is a command that go-redis does not repeat by itself. The session's
// client repeats a failed call, because only it knows what it still wants.
type onceCmd struct{ *redis.StringCmd }

// NoRetry implements redis.Cmder.
func (onceCmd) NoRetry() bool { return true }

// The commands as interface values, made once so that a call allocates none.
var evalsha, eval any = "evalsha", "eval"

// runStep runs the script once. It sends the hash, and the whole script if the
// server does not know the hash. It sets the first two words.
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
