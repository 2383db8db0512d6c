-- Gives up the lock if it is the caller's.
-- KEYS[1] lock
-- ARGV[1] id
-- returns 1 given up, 0 not the caller's (any more)
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
    return 0
end
return redis.call('DEL', KEYS[1])
