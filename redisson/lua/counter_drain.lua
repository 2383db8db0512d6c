-- Takes all available permits. A counter below 0 is raised to 0.
--
-- KEYS    counter, channel, [receipts]
-- Returns {what was available, below 0 if it was}
if earlier then return earlier end
local v = value() or 0
if v > 0 then redis.call('DECRBY', K, v) elseif v < 0 then credit(-v) end
return answer(v ~= 0, v)
