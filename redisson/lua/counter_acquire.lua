-- Takes n permits if that many are available, else none.
--
-- KEYS    counter, channel, [receipts]
-- ARGV[5] n
-- Returns {1 granted | 0 refused, permits available now, -1, 0}
if earlier then return earlier end
local n, v = tonumber(ARGV[5]), value()
if v and v >= n then return answer(true, 1, redis.call('DECRBY', K, n), -1, 0) end
return answer(false, 0, v or 0, -1, 0)
