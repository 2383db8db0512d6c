-- Undoes an acquisition whose caller has given up or never got the answer; see
-- counter_undo.lua. The ids tell whether it was granted.
--
-- KEYS       counter, channel, timeouts, [receipts]
-- ARGV[5]    lease in ms; not used, the acquisition has it there
-- ARGV[6...] ids of the acquisition
-- Returns {0}
if earlier and earlier[1] ~= 1 then return earlier end
return_permits({unpack(ARGV, 6)})
return answer(true, 0)
