-- Does one thing to the semaphore's keys as a whole.
--
-- KEYS    counter, channel, [timeouts], [receipts]
-- ARGV[5] 'del', 'pexpire', 'pexpireat', 'persist', 'pttl' or 'exists'
-- ARGV[6] ms or epoch ms, for the second and third
-- Returns {what Redis answers for the counter}
if earlier then return earlier end
local result
for i, key in ipairs(KEYS) do
  if i ~= 2 and key ~= R then
    local r
    if ARGV[6] then r = redis.call(ARGV[5], key, ARGV[6]) else r = redis.call(ARGV[5], key) end
    result = result or r
  end
end
return answer(result == 1, result)
