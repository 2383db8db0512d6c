-- Makes n the number of permits in all, held ones included. If more than n are
-- held, fewer than 0 are available until holders release; nobody loses a permit.
--
-- KEYS    counter, channel, timeouts, [receipts]
-- ARGV[5] n
-- ARGV[6] 'always', or 'new' to leave a semaphore alone that exists
-- Returns {1 set | 0 exists}
if earlier then return earlier end
local n, v = tonumber(ARGV[5]), value()
if v and ARGV[6] == 'new' then return answer(false, 0) end
-- Permits can outlive their counter. They are held, so they count among the n.
local available = n - redis.call('ZCOUNT', T, 0, '+inf')
if not v then
  redis.call('SET', K, available)
  if available > 0 then publish(available) end
elseif available > v then
  credit(available - v)
elseif available < v then
  redis.call('DECRBY', K, v - available)
end
return answer(true, 1)
