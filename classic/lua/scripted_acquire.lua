-- Takes a permit if fewer than the limit are held.
-- KEYS[1] ZSET of holders by time of acquisition
-- ARGV[1] newest expired time, ARGV[2] limit, ARGV[3] time, ARGV[4] id
-- returns 1 taken, 0 full
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', ARGV[1])
if redis.call('ZSCORE', KEYS[1], ARGV[4]) then
    return 1 -- the client asks again because the first answer got lost
end
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[2]) then
    return 0
end
redis.call('ZADD', KEYS[1], ARGV[3], ARGV[4])
return 1
