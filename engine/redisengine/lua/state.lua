-- state is a snapshot of one semaphore; it writes nothing.
--
-- KEYS  1 state  2 holders  3 waiters  4 tickets  5 slots  6 tokens, as in step
-- returns  now, limit, pinned,
--       live holders as id, end of lease, …; live waiters as id, arrival, …;
--       slots as id, slot, …; tokens as id, token, …

local state, holders, waiters, tickets, slots, tokens = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local function text(n) return string.format('%.0f', n) end

local raw = redis.call('GET', state)
local limit, pinned = 0, 0
if raw then
  if string.sub(raw, 1, 4) ~= MARK then return redis.error_reply('WRONGTYPE ' .. state .. ' is not sema\'s') end
  local all = {struct.unpack(LAYOUT, raw)}
  limit, pinned = all[2], all[11]
end
local queue, ends = redis.call('ZRANGE', waiters, 0, -1, 'WITHSCORES'), {}
local all = redis.call('HGETALL', tickets)
for i = 1, #all, 2 do ends[all[i]] = (tonumber(all[i + 1]) or 0) > now end
local live = {}
for i = 1, #queue, 2 do
  if ends[queue[i]] then
    live[#live + 1] = queue[i]
    live[#live + 1] = queue[i + 1]
  end
end
return {
  text(now), text(limit), text(pinned),
  redis.call('ZRANGEBYSCORE', holders, '(' .. text(now), '+inf', 'WITHSCORES'), live,
  redis.call('ZRANGE', slots, 0, -1, 'WITHSCORES'), redis.call('HGETALL', tokens),
}
