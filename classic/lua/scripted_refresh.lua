-- Sets the time of a permit that is still held.
-- KEYS[1] ZSET of holders by time of acquisition
-- ARGV[1] id, ARGV[2] time
-- returns 1 refreshed, 0 lost
if not redis.call('ZSCORE', KEYS[1], ARGV[1]) then
    return 0
end
redis.call('ZADD', KEYS[1], ARGV[2], ARGV[1])
return 1
