-- Takes back an acquisition whose caller has gone or never heard the answer;
-- see counter_undo.lua. The ids tell whether it was granted.
--
-- KEYS       counter, channel, timeouts, [receipts]
-- ARGV[5]    lease in ms; not used, the acquisition has it there
-- ARGV[6...] ids of the acquisition
-- Returns {0}
local old = earlier()
if old and old[1] ~= 1 then return old end
local ids = {}
for i = 6, #ARGV do ids[#ids + 1] = ARGV[i] end
give(ids)
return answer(true, 0)
