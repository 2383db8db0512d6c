-- Put between shared.lua and the scripts of the expirable semaphore.
--
-- KEYS[3] held permits, see shared.lua
local T = KEYS[3]
local NEVER = 922337203685477 -- Redisson's score of a permit without lease
local BATCH = 1000            -- ended leases collected per call: keeps unpack and the server's pause small

-- now is the server's clock in epoch ms. Each script reads it once.
local function now()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

local function ms_text(ms) return string.format('%.0f', ms) end

-- return_permits removes held permits and credits the counter with those that
-- were there. It does not credit a counter that is gone: that would make a new
-- one, without its limit and its time to live. Nor does it raise a counter
-- beyond Java's int.
local function return_permits(ids)
  local v, removed = value(), redis.call('ZREM', T, unpack(ids))
  if v and removed > 0 and v < MAX then credit(math.min(removed, MAX - v)) end
end

-- collect returns up to BATCH permits whose lease has ended. It answers 1 when
-- there may be more of them.
local function collect(t)
  local ids = redis.call('ZRANGEBYSCORE', T, 0, ms_text(t), 'LIMIT', 0, BATCH)
  if #ids == 0 then return 0 end
  return_permits(ids)
  return #ids == BATCH and 1 or 0
end

-- copy_ttl gives the held permits the time to live of their counter.
local function copy_ttl()
  local ttl = redis.call('PTTL', K)
  if ttl > 0 then redis.call('PEXPIRE', T, ttl) end
end

-- lease_end is the score of a lease that starts now; lease in ms, below 0 for none.
local function lease_end(t, lease)
  return ms_text(lease < 0 and NEVER or t + lease)
end
