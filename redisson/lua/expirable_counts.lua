-- Counts permits. Ended leases that were not collected yet count as available.
-- They are not collected here: reading changes nothing, and stays quick however
-- many there are.
--
-- KEYS    counter, channel, timeouts
-- Returns {available, acquired, permits in all}; the first and last are 0 without a semaphore
local t, v = now(), value()
local ended = redis.call('ZCOUNT', T, 0, ms_text(t))
local held = redis.call('ZCOUNT', T, '(' .. ms_text(t), '+inf')
if not v then return {0, held, 0} end
return {v + ended, held, v + ended + held}
