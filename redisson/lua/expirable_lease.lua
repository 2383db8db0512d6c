-- Reads the rest of a lease.
--
-- KEYS    counter, channel, timeouts
-- ARGV[5] id
-- Returns {ms left, -1 without lease, 0 not held}
local t, score = now(), redis.call('ZSCORE', T, ARGV[5])
if not score or tonumber(score) <= t then return {0} end
if tonumber(score) == NEVER then return {-1} end
return {score - t}
