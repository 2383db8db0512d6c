package redisengine

import (
	"cmp"
	"context"
	"embed"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/*.lua
var files embed.FS

// lua returns a file of the folder lua.
func lua(name string) string {
	text, err := files.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err)
	}
	return string(text)
}

var stateScript = sync.OnceValue(func() *redis.Script { return redis.NewScript(lua("layout") + lua("state")) })

const layoutPlace = "-- layout\n"

// step returns the script that carries out calls, and its hash. Both are
// strings.
var step = sync.OnceValues(func() (source, hash any) {
	text := inlined(lua("layout"), assemble(lua("first"), lua("plain"), lua("last")))
	return text, redis.NewScript(text).Hash()
})

// assemble puts the parts of the script in order. The rules are the fields of table R.
// Making functions costs, so R is made only for a call that plain.lua could not carry out.
// The fields of rare.lua and keys.lua are made at the first use of one, and then those of pools.lua and rates.lua.
func assemble(first, plain, last string) string {
	return first + "local function plain_pools()\n" + lua("units") + lua("plainpools") + "end\n" + plain + layoutPlace +
		"local function pools(R)\n" + lua("units") + lua("pools") + lua("rates") + "end\n" +
		"local function rare(R)\n" + lua("rare") + lua("keys") + "end\n" +
		"local function rules()\nlocal R\nR = {\n" + lua("rules") + lua("store") + "}\n" +
		"local function later(make, next_make)\nreturn setmetatable(R, {__index = function(_, name)\n" +
		"setmetatable(R, nil)\nmake(R)\nif next_make then later(next_make) end\nreturn R[name]\nend})\nend\n" +
		"return later(rare, pools)\nend\n" + last
}

// inlined replaces each constant of the layout that is a number or a string by its value. A Lua local
// would cost whenever the script runs, and again for each function that uses it. The other
// definitions of the layout go to layoutPlace in script.
func inlined(layout, script string) string {
	values, others := map[string]string{}, ""
	for line := range strings.Lines(layout) {
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
	script = strings.Replace(script, layoutPlace, others, 1)
	// No regular expression: this is part of a program's first call, and
	// compiling one takes time.
	var b strings.Builder
	b.Grow(len(script))
	for script != "" {
		rest := strings.TrimLeftFunc(script, inName)
		if rest == script {
			rest = script[1:]
		}
		part := script[:len(script)-len(rest)]
		if 'A' <= part[0] && part[0] <= 'Z' { // no other name is a constant's
			part = cmp.Or(values[part], part)
		}
		b.WriteString(part)
		script = rest
	}
	return b.String()
}

// inName reports whether a character may be part of a name.
func inName(c rune) bool {
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

// runStep runs the script once, and then wait on the same connection; nil: nothing.
// It sends the hash, and the whole script if the server does not know the hash. It
// sets the first two words.
func runStep(ctx context.Context, rdb redis.UniversalClient, words []any, wait redis.Cmder) (string, error) {
	source, hash := step()
	reply, err := send(ctx, rdb, words, evalsha, hash, wait)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		return send(ctx, rdb, words, eval, source, wait)
	}
	return reply, err
}

func send(ctx context.Context, rdb redis.UniversalClient, words []any, command, script any, wait redis.Cmder) (string, error) {
	words[0], words[1] = command, script
	cmd := onceCmd{redis.NewStringCmd(ctx, words...)}
	if wait == nil {
		_ = rdb.Process(ctx, cmd) // cmd has the error
	} else {
		pipe := rdb.Pipeline()
		_, _ = pipe.Process(ctx, cmd), pipe.Process(ctx, wait)
		_, _ = pipe.Exec(ctx) // the commands have the errors
	}
	return cmd.Result()
}
