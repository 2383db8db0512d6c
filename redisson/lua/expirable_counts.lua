-- Counts permits. Ended leases that nobody collected yet count as available,
-- without being collected: reading changes nothing and stays quick however many there are.
--
-- KEYS    counter, channel, timeouts
-- Returns {available, acquired, permits in all}; the first and last are 0 without a semaphore
local t, v = now(), value()
local ended = redis.call('ZCOUNT', T, 0, text(t))
local held = redis.call('ZCOUNT', T, '(' .. text(t), '+inf')
if not v then return {0, held, 0} end
return {v + ended, held, v + ended + held}
