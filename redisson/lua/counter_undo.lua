-- Undoes an acquisition whose caller has given up or never got the answer. It
-- returns the permits if they were granted. It leaves a receipt, with which a
-- copy of the acquisition that arrives later does nothing. The request has the
-- lane and number of the acquisition. Without receipts it is sent only when the
-- acquisition was certainly granted.
--
-- KEYS    counter, channel, [receipts]
-- ARGV[5] n
-- Returns {0}
if earlier and earlier[1] ~= 1 then return earlier end
allow_without_memory()
local n, v = tonumber(ARGV[5]), value()
if (earlier or not R) and v and v + n <= MAX then credit(n) end
return answer(true, 0)
