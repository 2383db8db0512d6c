-- state returns a snapshot of a semaphore in one step, if its permits and
-- tickets are no more than ARGV[1]. Of a larger semaphore it returns only the
-- common values, and state.go reads permits and tickets in parts. It writes
-- nothing.
--
-- KEYS  1 state  2 holders  3 waiters  4 keys  5 lines  6 reports, as in layout.lua
-- ARGV  1 how many permits and tickets it reads at the most: fewer than unpack can take
-- returns  now, limit, flags, weight held, 1 if it read all of them;
--       their ids, the holders first; what the state has of each;
--       the ends of the holders' leases;
--       the keys of a semaphore with keys; AUTO and its end, or ''; OBSERVED and COOLDOWN and what follows them, or ''

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local raw = redis.call('HGET', KEYS[1], '')
if not raw then
  local is = redis.call('TYPE', KEYS[1]).ok
  if is ~= 'none' then return redis.error_reply('WRONGTYPE ' .. KEYS[1] .. ' is a ' .. is .. ' that is not sema\'s') end
  return {now, 0, 0, 0, 1, {}, {}, {}, {}, '', ''}
end
if string.sub(raw, 1, 4) ~= MARK then
  return redis.error_reply(string.format(string.find(raw, '^sem%d') and OTHER_VERSION or NOT_OURS, KEYS[1], raw, redis.call('HGET', KEYS[1], 'release') or '?'))
end
local _, limit, used, _, _, _, _, _, _, _, _, flags, _, behind = struct.unpack(STATE, raw)
local cooldown = flags >= 32 and string.sub(raw, behind) or ''
local auto = redis.pcall('HGET', KEYS[6], '')
if type(auto) ~= 'string' then auto = '' end -- there is none, or the key is foreign
local keys = flags % 16 >= 8 and redis.call('HGETALL', KEYS[4]) or {}
if redis.call('ZCARD', KEYS[2]) - 1 + redis.call('ZCARD', KEYS[3]) + redis.call('ZCARD', KEYS[5]) > tonumber(ARGV[1]) then -- less KEEPER
  return {now, limit, flags, used, 0, {}, {}, {}, keys, auto, cooldown}
end
local ids, ends, n = {}, {}, 0
local holders = redis.call('ZRANGE', KEYS[2], 0, -1, 'WITHSCORES')
for i = 1, #holders, 2 do
  n = n + 1
  ids[n], ends[n] = holders[i], holders[i + 1]
end
for _, id in ipairs(redis.call('ZRANGE', KEYS[3], 0, -1)) do
  n = n + 1
  ids[n] = id
end
for _, member in ipairs(redis.call('ZRANGE', KEYS[5], 0, -1)) do
  n = n + 1
  ids[n] = string.sub(member, string.find(member, '\0', 1, true) + 9)
end
return {now, limit, flags, used, 1, ids, n > 0 and redis.call('HMGET', KEYS[1], unpack(ids)) or {}, ends, keys, auto, cooldown}
