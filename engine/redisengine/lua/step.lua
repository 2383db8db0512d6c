-- step carries out operations on one semaphore, in order, as one atomic step.
-- package internal/ledger is the same in Go, and the judge of this script.
--
-- KEYS  1 state    hash  limit, used, token, arrival, pinned, keep, alarm,
--                        watcher, revoked; times in microseconds
--       2 holders  zset  permit id -> end of its lease; "!id" once revoked
--       3 waiters  zset  permit id -> place in the queue
--       4 tickets  hash  permit id -> end of its ticket
--       5 slots    zset  permit id -> slot, of permits with flag s
--       6 tokens   hash  permit id -> token, of permits with flag l
--       7 client   string, who the calling client is
-- ARGV  1 prefix of the inbox channels   2 id of the calling client
--       3 its description, or ''         4 milliseconds to keep that
--       then for each operation:
--       A id limit lease ticket arrival flags   acquire; flags w wait, u unfair, x strict
--       N id lease                              renew
--       R id                                    release
--       K id                                    revoke
--       L limit pin                             set limit; pin 1: for good
-- returns  limit, news for the caller ('' if none), then for each operation its
--       status, followed for 1 granted by token slot left, and
--       for 2 queued by arrival ahead ticket look
--
-- The script has no shebang on purpose: releases must work when memory is full.

local state, holders, waiters, tickets, slots, tokens = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local inbox, caller = ARGV[1], ARGV[2]

local GRANTED, QUEUED, REFUSED, GONE, REVOKED, TOO_HEAVY, LIMIT_DIFFERS = 1, 2, 3, 4, 5, 6, 7
local MINUTE = 60000000

-- Lua's own conversion keeps 14 digits; microseconds have 16.
local function text(n) return string.format('%.0f', n) end
local function weight(id) return tonumber(string.match(id, '(%d+)$')) end
local function client(id) return string.match(id, '^!?([^-]+)') end
local function has(id, flag) return string.find(id, flag .. 'l?%-%d+$') ~= nil end

local was = redis.call('HMGET', state, 'limit', 'used', 'token', 'arrival', 'pinned', 'keep', 'alarm', 'watcher', 'revoked')
local limit = tonumber(was[1] or 0)
local used = tonumber(was[2] or 0)
local token = tonumber(was[3] or 0)
local arrival = tonumber(was[4] or 0)
local pinned = was[5] or '0'
local keep = tonumber(was[6] or 0)
local alarm = tonumber(was[7] or 0)
local watcher = was[8] or ''
local revoked = tonumber(was[9] or 0)

-- Keys that are somebody else's are refused before anything is written.
local want = {'hash', 'zset', 'zset', 'hash', 'zset', 'hash'}
for i = 2, 6 do
  local is = redis.call('TYPE', KEYS[i]).ok
  if is ~= 'none' and is ~= want[i] then
    return redis.error_reply('WRONGTYPE ' .. KEYS[i] .. ' is a ' .. is .. ', not sema\'s ' .. want[i])
  end
end

local touched = {} -- keys that may have been created in this step

if not was[1] then
  -- First use, or the state was deleted under its holders: count anew what is
  -- held, and take the keys' time to live from themselves.
  touched[state] = true
  for i = 2, 6 do keep = math.max(keep, now + redis.call('PTTL', KEYS[i]) * 1000) end
  local from = 0
  repeat
    local some = redis.call('ZRANGE', holders, from, from + 999)
    for _, id in ipairs(some) do
      used = used + weight(id)
      if string.sub(id, 1, 1) == '!' then revoked = revoked + 1 end
    end
    from = from + 1000
  until #some < 1000
end

-- With its memory full the server refuses whatever may need more, but nothing
-- after a first write. Releases and renewals must pass, also those that travel
-- with acquisitions.
for i = 5, #ARGV do
  local word = ARGV[i]
  if word == 'R' or word == 'N' or word == 'K' then
    redis.call('ZREM', holders, '')
    break
  end
end

local extended = false -- the keys' time to live must be set anew

local function remember(lease)
  if keep < now + lease + MINUTE then
    keep = now + 2 * (lease + MINUTE)
    extended = true
  end
end

local function next_token()
  token = math.max(token + 1, now)
  return token
end

-- forget removes a permit; member is its id, or "!id".
local function forget(member)
  if redis.call('ZREM', holders, member) == 0 then return false end
  used = used - weight(member)
  local id = member
  if string.sub(member, 1, 1) == '!' then
    id = string.sub(member, 2)
    revoked = revoked - 1
  end
  if has(id, 's') then redis.call('ZREM', slots, id) end
  if has(id, 'l') then redis.call('HDEL', tokens, id) end
  return true
end

local function first_end()
  local first = redis.call('ZRANGE', holders, 0, 0, 'WITHSCORES')
  return first[2] and tonumber(first[2])
end

-- Permits whose lease is over are gone before anything else happens.
local ending = first_end()
while ending and ending <= now do
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', holders, '-inf', text(now), 'LIMIT', 0, 500)) do
    forget(member)
  end
  ending = first_end()
end
if not ending then used, revoked = 0, 0 end -- holds even if the key was deleted

-- take makes a holder; its slot is the lowest that is free. Slots are distinct
-- numbers, so as many as x of them below x means that none is free there.
local function take(id, lease_end)
  redis.call('ZADD', holders, lease_end, id)
  touched[holders] = true
  used = used + weight(id)
  local slot = -1
  if has(id, 's') then
    local low, high = 0, redis.call('ZCARD', slots)
    while low < high do
      local mid = math.floor((low + high) / 2)
      if redis.call('ZCOUNT', slots, 0, mid) == mid + 1 then low = mid + 1 else high = mid end
    end
    slot = low
    redis.call('ZADD', slots, slot, id)
    touched[slots] = true
  end
  local t = next_token()
  if has(id, 'l') then
    redis.call('HSET', tokens, id, text(t))
    touched[tokens] = true
  end
  return t, slot
end

local function slot_of(id)
  return has(id, 's') and tonumber(redis.call('ZSCORE', slots, id) or -1) or -1
end

-- The head of the queue, read when first needed. No head: false.
local head, head_arrival, head_known = false, 0, false
local function get_head()
  if not head_known then
    local first = redis.call('ZRANGE', waiters, 0, 0, 'WITHSCORES')
    head, head_arrival, head_known = first[1] or false, tonumber(first[2] or 0), true
  end
  return head
end

-- drop removes a ticket.
local function drop(id)
  if redis.call('ZREM', waiters, id) == 0 then return false end
  redis.call('HDEL', tickets, id)
  head_known = false
  return true
end

-- News for clients: what their inbox gets at the end of the step.
local news = {}
local function tell(who)
  if not news[who] then news[who] = {grants = {}} end
  return news[who]
end

-- A client that nobody listens for is not reached; the caller always is.
local reached = {[caller] = true}
local function reach(who)
  if reached[who] == nil then
    local sharded = string.sub(who, 1, 1) == 's'
    local count = redis.call('PUBSUB', sharded and 'SHARDNUMSUB' or 'NUMSUB', inbox .. who)
    reached[who] = tonumber(count[2]) > 0
  end
  return reached[who]
end

local handed = {} -- permits that were handed over in this step: token, slot

-- grant hands free weight to the head of the queue, as far as it goes.
local function grant()
  while get_head() do
    local id, who = head, client(head)
    local ticket_end = tonumber(redis.call('HGET', tickets, id) or 0)
    if ticket_end <= now then
      drop(id) -- fell silent
    elseif weight(id) > limit then
      drop(id) -- could never be served; asking again tells its client
      tell(who).ask = true
    elseif used + weight(id) > limit then
      return
    elseif not reach(who) then
      drop(id)
    else
      drop(id)
      local t, slot = take(id, ticket_end)
      handed[id] = {t, slot}
      tell(who).grants[id] = 'g ' .. id .. ' ' .. text(t) .. ' ' .. slot .. ' ' .. text(ticket_end) .. '\n'
    end
  end
end

local out = {0, ''}
local asker      -- the last ticket of the caller in this step
local looks = {} -- where the answers of its tickets say when to look
local function granted(t, slot, left)
  out[#out + 1] = GRANTED
  out[#out + 1] = t
  out[#out + 1] = slot
  out[#out + 1] = left
end

local function acquire(id, want, lease, ticket_life, place, flags)
  local w = weight(id)
  if limit == 0 and w > want then -- and there still is no semaphore
    out[1] = want
    out[#out + 1] = TOO_HEAVY
    return
  end
  if limit == 0 then limit = want end
  remember(lease)
  local held_until = redis.call('ZSCORE', holders, id)
  if held_until then
    -- Its client never saw the first answer. Where the token was not recorded,
    -- nobody knows it, and a newer one serves as well.
    local t = has(id, 'l') and tonumber(redis.call('HGET', tokens, id) or 0) or next_token()
    granted(t, slot_of(id), tonumber(held_until) - now)
    return
  end
  if revoked > 0 and redis.call('ZSCORE', holders, '!' .. id) then
    out[#out + 1] = REVOKED
    return
  end
  if want ~= limit and string.find(flags, 'x', 1, true) then
    drop(id)
    out[#out + 1] = LIMIT_DIFFERS
    return
  end
  if w > limit then
    drop(id)
    out[#out + 1] = TOO_HEAVY
    return
  end
  grant()
  if handed[id] then -- its turn came just now
    redis.call('ZADD', holders, now + lease, id)
    tell(caller).grants[id] = nil
    granted(handed[id][1], handed[id][2], lease)
    return
  end
  local first = not head or head == id or (place > 0 and place < head_arrival) or string.find(flags, 'u', 1, true)
  if first and used + w <= limit then
    if head then drop(id) end
    local t, slot = take(id, now + lease)
    granted(t, slot, lease)
    return
  end
  if not string.find(flags, 'w', 1, true) then
    out[#out + 1] = REFUSED
    return
  end
  local mine = head and tonumber(redis.call('ZSCORE', waiters, id) or 0) or 0
  if mine == 0 then
    mine = place > 0 and place or math.max(arrival + 1, now)
    arrival = math.max(arrival, mine)
    redis.call('ZADD', waiters, mine, id)
    touched[waiters] = true
    head_known = false
  end
  if redis.call('HSET', tickets, id, text(now + ticket_life)) == 1 then touched[tickets] = true end
  out[#out + 1] = QUEUED
  out[#out + 1] = mine
  out[#out + 1] = redis.call('ZRANK', waiters, id)
  out[#out + 1] = now + ticket_life
  out[#out + 1] = 0
  asker, looks[#looks + 1] = id, #out
end

local function renew(id, lease)
  if redis.call('ZSCORE', holders, id) then
    redis.call('ZADD', holders, now + lease, id)
    remember(lease)
    granted(has(id, 'l') and tonumber(redis.call('HGET', tokens, id) or 0) or 0, slot_of(id), lease)
  elseif revoked > 0 and redis.call('ZSCORE', holders, '!' .. id) then
    out[#out + 1] = REVOKED
  else
    out[#out + 1] = GONE
  end
end

-- take_back forgets that a permit was handed over in this step.
local function take_back(id)
  if handed[id] then
    handed[id] = nil
    tell(client(id)).grants[id] = nil
  end
end

local function release(id)
  take_back(id)
  local found = forget(id) or (revoked > 0 and forget('!' .. id)) or drop(id)
  out[#out + 1] = found and 1 or 0
  grant()
end

local function revoke(id)
  take_back(id)
  local lease_end = redis.call('ZSCORE', holders, id)
  if lease_end then
    redis.call('ZADD', holders, lease_end, '!' .. id) -- first, lest the key goes, and its time to live
    redis.call('ZREM', holders, id)
    revoked = revoked + 1
  elseif revoked > 0 then
    lease_end = redis.call('ZSCORE', holders, '!' .. id)
  end
  out[#out + 1] = lease_end and 1 or 0
end

-- watch sees to it that some client calls when the first lease ends, if anybody
-- waits. Whoever asks is told when that is; so only a lease that ends before
-- all that were known needs a message, to the ticket that joined last.
local function watch()
  local first = get_head() and first_end()
  for _, at in ipairs(looks) do out[at] = first and first - now or 0 end
  while first and get_head() do
    if watcher ~= '' and now < alarm and alarm <= first and redis.call('HEXISTS', tickets, watcher) == 1 then return end
    alarm = first
    if asker and redis.call('HEXISTS', tickets, asker) == 1 then
      watcher = asker
      return
    end
    local tail = redis.call('ZRANGE', waiters, -1, -1)[1]
    if tonumber(redis.call('HGET', tickets, tail) or 0) > now and reach(client(tail)) then
      watcher, tell(client(tail)).look = tail, first - now
      return
    end
    drop(tail)
  end
  alarm, watcher = 0, ''
end

local i = 5
while ARGV[i] do
  local op = ARGV[i]
  if op == 'A' then
    acquire(ARGV[i + 1], tonumber(ARGV[i + 2]), tonumber(ARGV[i + 3]), tonumber(ARGV[i + 4]), tonumber(ARGV[i + 5]), ARGV[i + 6])
    i = i + 7
  elseif op == 'N' then
    renew(ARGV[i + 1], tonumber(ARGV[i + 2]))
    i = i + 3
  elseif op == 'R' then
    release(ARGV[i + 1])
    i = i + 2
  elseif op == 'K' then
    revoke(ARGV[i + 1])
    i = i + 2
  else
    limit = tonumber(ARGV[i + 1])
    if ARGV[i + 2] == '1' then pinned, extended = '1', true end
    remember(0)
    out[#out + 1] = 1
    i = i + 3
  end
end
grant()
watch()

if limit > 0 then
  redis.call('HSET', state, 'limit', limit, 'used', used, 'token', text(token), 'arrival', text(arrival),
    'pinned', pinned, 'keep', text(keep), 'alarm', text(alarm), 'watcher', watcher, 'revoked', revoked)
end
local left = math.ceil((keep - now) / 1000)
if extended then
  for i = 2, 6 do redis.call('PEXPIRE', KEYS[i], left) end
  if pinned == '1' then redis.call('PERSIST', state) else redis.call('PEXPIRE', state, left) end
else
  for key in pairs(touched) do
    if redis.call('PTTL', key) == -1 then redis.call('PEXPIRE', key, left) end
  end
end
if ARGV[3] ~= '' then redis.call('SET', KEYS[7], ARGV[3], 'PX', ARGV[4]) end
-- The messages come last, and nothing depends on them: a user without rights to
-- the channels must not leave half a step behind.
for who, n in pairs(news) do
  local lines = {}
  for _, line in pairs(n.grants) do lines[#lines + 1] = line end
  if n.ask then lines[#lines + 1] = 'a\n' end
  if n.look then lines[#lines + 1] = 'l ' .. text(n.look) .. '\n' end
  local message = table.concat(lines)
  if who == caller then
    out[2] = message
  elseif message ~= '' then
    redis.pcall(string.sub(who, 1, 1) == 's' and 'SPUBLISH' or 'PUBLISH', inbox .. who, message)
  end
end
if limit > 0 then out[1] = limit end
return out
