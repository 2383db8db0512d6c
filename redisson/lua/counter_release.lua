-- Returns n permits.
--
-- KEYS    counter, channel, [receipts]
-- ARGV[5] n
-- Returns {1 done | 0 no such semaphore | -1 too many permits}; unless 1, nothing has changed
if earlier then return earlier end
allow_without_memory()
local n, v = tonumber(ARGV[5]), value()
if not v then return answer(false, 0) end
if v + n > MAX then return answer(false, -1) end
credit(n)
return answer(true, 1)
