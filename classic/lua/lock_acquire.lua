-- Takes the lock if it is free.
-- KEYS[1] lock
-- ARGV[1] lease in whole seconds, ARGV[2] id
-- returns 1 taken, 0 held by another
local holder = redis.call('GET', KEYS[1])
if holder == ARGV[2] then
    return 1 -- the client asks again because the first answer got lost
end
if holder then
    return 0
end
redis.call('SETEX', KEYS[1], ARGV[1], ARGV[2])
return 1
