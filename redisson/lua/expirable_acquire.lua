-- Returns permits whose lease has ended to the counter, then takes one permit
-- for each id if that many are available, else none.
--
-- KEYS       counter, channel, timeouts, [receipts]
-- ARGV[5]    lease in ms, below 0 for none
-- ARGV[6...] ids of 16 bytes, made by the client
-- Returns {1 granted | 0 refused, permits available now, ms until the next lease ends or -1,
--          1 when more ended leases wait to be collected}
if earlier then return earlier end
-- Without receipts the ids tell that an earlier copy was executed.
if ARGV[4] == 'again' and redis.call('ZSCORE', T, ARGV[6]) then return answer(true, 1, value() or 0, -1, 0) end
local n, t = #ARGV - 5, now()
local more = collect(t)
local v = value()
if v and v >= n then
  v = redis.call('DECRBY', K, n)
  for i = 6, #ARGV do redis.call('ZADD', T, lease_end(t, tonumber(ARGV[5])), ARGV[i]) end
  copy_ttl()
  return answer(true, 1, v, -1, 0)
end
local wait, first = -1, redis.call('ZRANGEBYSCORE', T, '(' .. ms_text(t), '(' .. ms_text(NEVER), 'WITHSCORES', 'LIMIT', 0, 1)
if first[2] then wait = first[2] - t end
return answer(false, 0, v or 0, wait, more)
