-- step carries out operations on one semaphore, in order, as one atomic step.
-- package internal/ledger is the same in Go, and the judge of this script.
--
-- KEYS  1 state    string  see layout; times in microseconds
--       2 holders  zset    permit id -> end of its lease; "!id" once revoked
--       3 waiters  zset    permit id -> place in the queue
--       4 tickets  hash    permit id -> end of its ticket
--       5 slots    zset    permit id -> slot, of permits with flag s
--       6 tokens   hash    permit id -> token, of permits with flag l
--       7 client   string  who the calling client is; with D only
-- ARGV  1 id of the calling client
--       2 what the operations need: w the queue, s slots, l tokens, h that all
--         keys be looked at, f that they pass though memory is full
--       then, first, if the client is to be described,
--       D description milliseconds
--       and runs of n operations of one kind:
--       A limit lease ticket weight flags n id…        acquire
--       Q limit lease ticket weight flags n id place…  acquire, with a place in the queue
--       N lease flags n id…                            renew
--       R weight flags n id…                           release
--       K id                                           revoke
--       L limit pin                                    set limit; pin 1: for good
--       flags: w wait, u unfair, x strict; s and l as in the ids
-- returns  limit, news for the caller ('' if none), then answers for runs of
--       operations: status, how many, and for
--       1 granted: token of the first (0: unknown), slot, left; further tokens follow on it
--       2 queued: arrival and ahead of the first, ticket, look; further ones follow on them
--
-- Operations of one kind go together, because a call of the server's costs more
-- than another word in it: what is plain is done here, by the run; what is not
-- by general. The script has no shebang on purpose: releases must work when
-- memory is full.

local raw = redis.pcall('GET', KEYS[1])
if raw and (raw.err or string.sub(raw, 1, 4) ~= MARK) then
  return redis.error_reply('WRONGTYPE ' .. KEYS[1] .. ' is not sema\'s')
end
local needs = ARGV[2]
local s = {
  limit = 0,   -- 0: there is no semaphore
  used = 0,    -- weight held
  token = 0,   -- the last one given
  arrival = 0, -- the last place given
  keep = 0,    -- until when the keys live
  first = 0,   -- no lease ends before
  alarm = 0,   -- when the watcher calls
  revoked = 0, -- how many holders are
  queued = 0,  -- how many tickets there are
  pinned = 0,  -- 1: the limit outlives idleness
  slotted = 0, -- 1: slots have been used
  listed = 0,  -- 1: tokens have been used
  watcher = '',
  out = {0, ''},    -- the reply
  news = {},        -- for clients: {grants = {id = line}, ask, look}
  touched = {},     -- keys that may have been created in this step
  extended = false, -- the keys' time to live must be set anew
  released = false, -- there may be room for the head of the queue
}
if raw then
  local _
  _, s.limit, s.used, s.token, s.arrival, s.keep, s.first, s.alarm, s.revoked, s.queued, s.pinned, s.slotted, s.listed, s.watcher = struct.unpack(LAYOUT, raw)
end
if string.find(needs, 's', 1, true) then s.slotted = 1 end
if string.find(needs, 'l', 1, true) then s.listed = 1 end

-- Keys that are somebody else's are refused before anything is written. What is
-- done with holders first of all fails by itself.
local types = {'string', 'zset', 'zset', 'hash', 'zset', 'hash'}
local all = not raw or string.find(needs, 'h', 1, true)
local queueing = s.queued > 0 or string.find(needs, 'w', 1, true)
if all or queueing or s.slotted == 1 or s.listed == 1 then
  for i = 2, 6 do
    if all or i == 5 and s.slotted == 1 or i == 6 and s.listed == 1 or queueing and (i == 3 or i == 4) then
      local is = redis.call('TYPE', KEYS[i]).ok
      if is ~= 'none' and is ~= types[i] then
        return redis.error_reply('WRONGTYPE ' .. KEYS[i] .. ' is a ' .. is .. ', not sema\'s ' .. types[i])
      end
      if is ~= 'none' and i == 5 then s.slotted = 1 end
      if is ~= 'none' and i == 6 then s.listed = 1 end
    end
  end
end

if not raw then
  -- First use, or the state was deleted under its holders: count anew what is
  -- there, and take the keys' time to live from themselves.
  for i = 2, 6 do s.keep = math.max(s.keep, now + redis.call('PTTL', KEYS[i]) * 1000) end
  local from = 0
  repeat
    local some = redis.call('ZRANGE', KEYS[2], from, from + 999)
    for _, id in ipairs(some) do
      s.used = s.used + kind(id)
      if string.byte(id) == 33 then s.revoked = s.revoked + 1 end
    end
    from = from + 1000
  until #some < 1000
  s.queued = redis.call('ZCARD', KEYS[3])
end

-- With its memory full the server refuses whatever may need more, but nothing
-- after a first write. Releases and renewals must pass, also those that travel
-- with acquisitions.
if string.find(needs, 'f', 1, true) then redis.call('ZREM', KEYS[2], '') end

-- Permits whose lease is over are gone before anything else happens.
if s.first <= now then
  find_first(s)
  while s.first <= now do
    for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', text(now), 'LIMIT', 0, 500)) do
      forget(s, member)
    end
    find_first(s)
  end
end

-- scores is ids, of which there are n from ARGV[from] on, each behind a score.
local function scores(score, from, n)
  local list, at = {}, text(score)
  for i = 1, n do
    list[2 * i - 1] = at
    list[2 * i] = ARGV[from + i - 1]
  end
  return unpack(list)
end

local out = s.out
local described = ARGV[3] == 'D'
local i, done = described and 6 or 3, 0
while s.revoked == 0 and ARGV[i] do
  local op = ARGV[i]
  if op == 'A' then
    local want, lease, weight, flags, n = tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]), tonumber(ARGV[i + 4]), ARGV[i + 5], tonumber(ARGV[i + 6])
    local limit = s.limit == 0 and want or s.limit
    local fit = math.min(n, math.floor((limit - s.used) / weight))
    if s.queued > 0 or fit < 1 or string.find(flags, 's', 1, true) or want ~= limit and string.find(flags, 'x', 1, true) then break end
    s.limit = limit
    remember(s, lease)
    if s.used == 0 then s.touched[KEYS[2]] = true end -- who emptied it deleted it
    local added = redis.call('ZADD', KEYS[2], 'NX', scores(now + lease, i + 7, fit))
    s.used, s.first = s.used + added * weight, math.min(s.first, now + lease)
    local token = math.max(s.token + 1, now)
    if string.find(flags, 'l', 1, true) then
      for k = 1, fit do redis.call('HSETNX', KEYS[6], ARGV[i + 6 + k], text(token + k - 1)) end
      s.touched[KEYS[6]] = true
    end
    s.token = token + fit - 1
    if added < fit then break end -- some were held already: general tells which
    out[#out + 1], out[#out + 2], out[#out + 3], out[#out + 4], out[#out + 5] = 1, fit, token, -1, lease
    if fit < n then
      done = fit
      break
    end
    i = i + 7 + n
  elseif op == 'N' then
    local lease, n = tonumber(ARGV[i + 1]), tonumber(ARGV[i + 3])
    if ARGV[i + 2] ~= '' or redis.call('ZADD', KEYS[2], 'XX', 'CH', scores(now + lease, i + 4, n)) < n then break end
    s.first = math.min(s.first, now + lease)
    remember(s, lease)
    out[#out + 1], out[#out + 2], out[#out + 3], out[#out + 4], out[#out + 5] = 1, n, 0, -1, lease
    i = i + 4 + n
  elseif op == 'R' and not string.find(ARGV[i + 2], 's', 1, true) then
    -- One by one: to ask for their scores, whether all are there, takes longer.
    local weight, listing, n, k = tonumber(ARGV[i + 1]), ARGV[i + 2] ~= '', tonumber(ARGV[i + 3]), 0
    while k < n do
      local id = ARGV[i + 4 + k]
      if redis.call('ZREM', KEYS[2], id) == 0 then break end
      if listing then redis.call('HDEL', KEYS[6], id) end
      k = k + 1
    end
    if k > 0 then
      s.used, s.released = s.used - k * weight, true
      out[#out + 1], out[#out + 2] = 1, k
    end
    if k < n then
      done = k
      break
    end
    i = i + 4 + n
  else
    break
  end
end
if s.queued > 0 or ARGV[i] then general(s, i, done) end

local left = math.ceil((s.keep - now) / 1000)
if s.limit > 0 then
  out[1] = s.limit
  local packed = struct.pack(LAYOUT, MARK, s.limit, s.used, s.token, s.arrival, s.keep, s.first, s.alarm, s.revoked, s.queued, s.pinned, s.slotted, s.listed, s.watcher)
  if s.pinned == 1 then
    redis.call('SET', KEYS[1], packed)
  elseif s.extended or not raw then
    redis.call('SET', KEYS[1], packed, 'PX', left)
  else
    redis.call('SET', KEYS[1], packed, 'KEEPTTL')
  end
end
if s.extended then
  for i = 2, 6 do
    if redis.call('TYPE', KEYS[i]).ok == types[i] then redis.call('PEXPIRE', KEYS[i], left) end
  end
else
  for key in pairs(s.touched) do redis.call('PEXPIRE', key, left) end
end
if described then redis.call('SET', KEYS[7], ARGV[4], 'PX', ARGV[5]) end

-- The messages come last, and nothing depends on them: a user without rights to
-- the channels must not leave half a step behind.
local inbox = string.sub(KEYS[1], 1, -6) .. 'inbox:'
for who, n in pairs(s.news) do
  local lines = {}
  for _, line in pairs(n.grants) do lines[#lines + 1] = line end
  if n.ask then lines[#lines + 1] = 'a\n' end
  if n.look then lines[#lines + 1] = 'l ' .. text(n.look) .. '\n' end
  local message = table.concat(lines)
  if who == ARGV[1] then
    out[2] = message
  elseif message ~= '' then
    redis.pcall(string.byte(who) == 115 and 'SPUBLISH' or 'PUBLISH', inbox .. who, message)
  end
end
return out
