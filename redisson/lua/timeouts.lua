-- Put between shared.lua and the scripts of the expirable semaphore.
--
-- KEYS[3] held permits, see shared.lua
local T = KEYS[3]
local NEVER = 922337203685477 -- Redisson's score of a permit without lease
local BATCH = 1000            -- expired permits collected per call: keeps unpack and the server's pause small

-- now is the server's clock in epoch ms; scripts ask once.
local function now()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

local function text(ms) return string.format('%.0f', ms) end

-- give removes permits and credits the counter with those that were there,
-- unless the counter is gone: crediting would bring it back to life without
-- its limit and its time to live.
local function give(ids)
  local v, removed = value(), redis.call('ZREM', T, unpack(ids))
  if v and removed > 0 then credit(math.min(removed, MAX - v)) end
  return removed
end

-- collect gives back up to BATCH permits whose lease has ended; returns 1 when
-- there may be more.
local function collect(t)
  local ids = redis.call('ZRANGEBYSCORE', T, 0, text(t), 'LIMIT', 0, BATCH)
  if #ids == 0 then return 0 end
  give(ids)
  return #ids == BATCH and 1 or 0
end

-- follow lets the held permits end with the counter they belong to.
local function follow()
  local ttl = redis.call('PTTL', K)
  if ttl > 0 then redis.call('PEXPIRE', T, ttl) end
end

-- ends is the score of a lease that starts now; lease in ms, below 0 for none.
local function ends(t, lease)
  return text(lease < 0 and NEVER or t + lease)
end
