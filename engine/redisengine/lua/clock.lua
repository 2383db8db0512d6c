-- now is the server's clock in microseconds, read once for the whole step.
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
