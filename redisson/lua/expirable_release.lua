-- Returns the permits of all ids if each is held and within its lease. Otherwise
-- it returns only those whose lease has ended, as the next acquisition would.
--
-- KEYS       counter, channel, timeouts, [receipts]
-- ARGV[5...] ids
-- Returns {1 released | 0 at least one was not held}
if earlier then return earlier end
local t, held, ended = now(), {}, {}
for i = 5, #ARGV do
  local score = tonumber(redis.call('ZSCORE', T, ARGV[i]))
  local list = score and (score > t and held or ended) or {}
  list[#list + 1] = ARGV[i]
end
if #held == #ARGV - 4 then
  return_permits(held)
  return answer(true, 1)
end
-- Without receipts nothing tells whether an earlier copy was executed. None of the
-- permits is there, so most likely it was.
if #held + #ended == 0 and not R and ARGV[4] == 'again' then return {1} end
if #ended > 0 then return_permits(ended) end
return answer(#ended > 0, 0)
