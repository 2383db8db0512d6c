-- Creates the semaphore with n permits unless it exists.
--
-- KEYS    counter, channel, [receipts]
-- ARGV[5] n
-- ARGV[6] time to live in ms, 0 for none
-- Returns {1 created | 0 exists}
if earlier then return earlier end
if value() then return answer(false, 0) end
if ARGV[6] == '0' then
  redis.call('SET', K, ARGV[5])
else
  redis.call('SET', K, ARGV[5], 'PX', ARGV[6])
end
if tonumber(ARGV[5]) > 0 then publish(tonumber(ARGV[5])) end
return answer(true, 1)
