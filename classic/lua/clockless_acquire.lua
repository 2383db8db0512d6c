-- Takes a permit if fewer than the limit are held.
-- KEYS[1] ZSET of owners by number, KEYS[2] counter, KEYS[3] the new holder's key
-- ARGV[1] what holder keys begin with, ARGV[2] limit, ARGV[3] lease in ms, ARGV[4] id
-- returns 1 taken, 0 full
-- The other holders' keys cannot be declared: only the ZSET knows them. They
-- share the name's hash tag, so on a cluster they are in the same slot.
for _, id in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
    if redis.call('EXISTS', ARGV[1] .. id) == 0 then
        redis.call('ZREM', KEYS[1], id)
    end
end
if redis.call('EXISTS', KEYS[3]) == 1 then
    return 1 -- the client asks again because the first answer got lost
end
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[2]) then
    return 0
end
redis.call('SET', KEYS[3], ARGV[3], 'PX', ARGV[3])
redis.call('ZADD', KEYS[1], redis.call('INCR', KEYS[2]), ARGV[4])
return 1
