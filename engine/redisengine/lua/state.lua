-- state is a snapshot of one semaphore; it writes nothing.
--
-- KEYS  1 state  2 holders  3 waiters, as in words.lua
-- returns  now, limit, flags,
--       live holders as id, end of lease, …; waiters in order;
--       what the state has of all of them as id, value, …

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local raw = redis.call('HGET', KEYS[1], '')
if not raw then
  local is = redis.call('TYPE', KEYS[1]).ok
  if is ~= 'none' then return redis.error_reply('WRONGTYPE ' .. KEYS[1] .. ' is a ' .. is .. ' that is not sema\'s') end
  return {now, 0, 0, {}, {}, {}}
end
local mark, limit, _, _, _, _, _, _, _, _, _, flags = struct.unpack(STATE, raw)
if mark ~= MARK then return redis.error_reply('WRONGTYPE ' .. KEYS[1] .. ' is not sema\'s') end
return {
  now, limit, flags,
  redis.call('ZRANGEBYSCORE', KEYS[2], string.format('(%.0f', now), '(inf', 'WITHSCORES'),
  redis.call('ZRANGE', KEYS[3], 0, -1),
  redis.call('HGETALL', KEYS[1]),
}
