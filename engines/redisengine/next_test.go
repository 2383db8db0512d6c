package redisengine

import (
	"strings"

	"github.com/redis/go-redis/v9"
)

// beOfTheNextRelease makes this process act like the next release. That release's state has another layout, sem5,
// with one more number in front. As docs/compatibility.md demands, it reads both layouts. It writes the older one
// while an older release wrote or asked a moment ago, and while a holder or waiter cannot read the newer one.
func beOfTheNextRelease() {
	replace := func(text, from, to string) string {
		if !strings.Contains(text, from) {
			panic("redisengine: " + from + " is not there")
		}
		return strings.ReplaceAll(text, from, to)
	}
	words := replace(lua("words"), "local MARK = 'sem3'\n", `local MARK, OLD, KNOWN = 'sem5', 'sem3', 1000000
local older, seen = true, 0 -- whether to write the older layout, and when that was last needed
`)
	number := "local STATE = '<c4dddddddddddBs'"
	words = replace(words, "local STATE = '<c4ddddddddddBs'", number+`
local OLD_STATE = '<c4ddddddddddBs'
local function pack_state(...)
  if older then return struct.pack(OLD_STATE, OLD, ...) .. struct.pack('<d', seen) end
  return struct.pack(STATE, MARK, 7, ...)
end
`)
	const numbers = "limit, used, token, keep, first, fenced, alarm, queued, keepers, keeps, flags, watcher"
	const refuse = "  if string.sub(raw, 1, 4) ~= MARK then\n"
	head, rest, _ := strings.Cut(lua("first"), refuse)
	refusal, rest, _ := strings.Cut(rest, "  end\n  _, "+numbers+" = struct.unpack(STATE, raw)\n")
	first := head + `  local behind
  if string.sub(raw, 1, 4) == OLD then
    _, ` + numbers + `, behind = struct.unpack(OLD_STATE, raw)
    seen = #raw >= behind and struct.unpack('<d', raw, behind) or now
    older = seen + KNOWN > now
    for _, id in ipairs(older and {} or redis.call('HKEYS', KEYS[1])) do
      if string.sub(id, 2, 2) == '3' then older, seen = true, now end
    end
    if not older then redis.call('HSET', KEYS[1], 'release', '0.2.0') end
  elseif string.sub(raw, 1, 4) == MARK then
    _, _, ` + numbers + `, behind = struct.unpack(STATE, raw)
    older = #raw >= behind -- such a release has asked
    if older then
      seen = now
      redis.call('HDEL', KEYS[1], 'release')
    end
  else
` + refusal + "  end\n" + rest
	first = replace(first, "local _, "+numbers+" = ", "seen = now\nlocal _, "+numbers+" = ")
	plain := replace(lua("plain"), "struct.pack(STATE, MARK, ", "pack_state(")
	last := replace(lua("last"), "struct.pack(STATE, MARK, ", "pack_state(")
	source := words + assemble(first, plain, last)
	step = func() (any, any) { return source, redis.NewScript(source).Hash() }
}

// ofTheNextRelease gives the engine's clients names that mark them as readers of
// sem5.
func (e *Engine) ofTheNextRelease() { e.clients = e.clients[:1] + "5" + e.clients[2:] }
