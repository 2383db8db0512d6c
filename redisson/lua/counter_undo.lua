-- Takes back an acquisition whose caller has gone or never heard the answer:
-- returns the permits if they were granted, and leaves a receipt that makes a
-- copy of the request which arrives later do nothing. Sent with the lane and
-- number of the acquisition; without receipts only when it was granted for sure.
--
-- KEYS    counter, channel, [receipts]
-- ARGV[5] n
-- Returns {0}
local old = earlier()
if old and old[1] ~= 1 then return old end
open()
local n, v = tonumber(ARGV[5]), value()
if (old or not R) and v and v + n <= MAX then credit(n) end
return answer(true, 0)
