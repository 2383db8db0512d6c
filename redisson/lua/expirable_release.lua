-- Returns the permits of all ids if each is held and within its lease. Otherwise
-- it returns only those whose lease has ended, as the next acquisition would.
--
-- KEYS       counter, channel, timeouts, [receipts]
-- ARGV[5...] ids
-- Returns {1 released | 0 at least one was not held}
local earlier = earlier_answer()
if earlier then return earlier end
local t, all, ended = now(), {}, {}
local held, found = true, false
for i = 5, #ARGV do
  all[#all + 1] = ARGV[i]
  local score = tonumber(redis.call('ZSCORE', T, ARGV[i]))
  found = found or score
  if not score then
    held = false
  elseif score <= t then
    held = false
    ended[#ended + 1] = ARGV[i]
  end
end
if held then
  return_permits(all)
  return answer(true, 1)
end
-- Without receipts nothing tells whether an earlier copy was executed. None of the
-- permits is there, so most likely it was.
if not found and not R and ARGV[4] == 'again' then return {1} end
if #ended > 0 then return_permits(ended) end
return answer(#ended > 0, 0)
