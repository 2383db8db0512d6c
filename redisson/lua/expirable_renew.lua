-- Sets a new lease that starts now, if the permit is held and its lease has not ended.
--
-- KEYS    counter, channel, timeouts, [receipts]
-- ARGV[5] lease in ms, below 0 for none
-- ARGV[6] id
-- Returns {1 set | 0 not held}
if earlier then return earlier end
local t, score = now(), redis.call('ZSCORE', T, ARGV[6])
if not score or tonumber(score) <= t then return answer(false, 0) end
redis.call('ZADD', T, 'XX', lease_end(t, tonumber(ARGV[5])), ARGV[6])
return answer(true, 1)
