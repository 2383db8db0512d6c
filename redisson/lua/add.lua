-- Adds n permits, or removes -n when n is below 0, also more than are available.
-- Creates the semaphore if there is none.
--
-- KEYS    counter, channel, [timeouts], [receipts]
-- ARGV[5] n
-- Returns {1 done | -1 the counter would leave Java's int, nothing has changed}
if earlier then return earlier end
local n, v = tonumber(ARGV[5]), value() or 0
if v + n > MAX or v + n < MIN then return answer(false, -1) end
if n > 0 then credit(n) else redis.call('INCRBY', K, n) end
return answer(true, 1)
