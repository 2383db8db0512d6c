-- Starts the lease of a live permit anew, with the length it was acquired for.
-- KEYS[1] ZSET of owners by number, KEYS[2] the holder's key
-- ARGV[1] id
-- returns 1 refreshed, 0 lost
local lease = redis.call('GET', KEYS[2])
if not lease or not redis.call('ZSCORE', KEYS[1], ARGV[1]) then
    return 0
end
return redis.call('PEXPIRE', KEYS[2], lease)
