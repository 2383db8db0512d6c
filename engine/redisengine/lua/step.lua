-- step carries out operations on one semaphore, in order, as one atomic step.
-- package internal/ledger is the same in Go, and the judge of this script.
--
-- KEYS  1 state    string  see layout; times in microseconds
--       2 holders  zset    permit id -> end of its lease; "!id" once revoked
--       3 waiters  zset    permit id -> place in the queue
--       4 tickets  zset    permit id -> end of its ticket
--       5 slots    zset    permit id -> slot, of permits with flag s
--       6 tokens   hash    permit id -> token, of permits with flag l
--       7 client   string  who the calling client is
-- ARGV  1 prefix of the inbox channels   2 id of the calling client
--       3 its description, or ''         4 milliseconds to keep that
--       5 what the operations need: w the queue, s slots, l tokens, h that all
--         keys be looked at, f that they pass though memory is full
--       then runs of n operations of one kind:
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
-- than another word in it: what is plain is done by the run, what is not one by
-- one. The script has no shebang on purpose: releases must work when memory is full.

local state, holders, waiters, tickets, slots, tokens = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local inbox, caller, needs = ARGV[1], ARGV[2], ARGV[5]

local GRANTED, QUEUED, REFUSED, GONE, REVOKED, TOO_HEAVY, LIMIT_DIFFERS = 1, 2, 3, 4, 5, 6, 7
local MINUTE, NEVER = 60000000, math.huge

local call, min, max, byte, find = redis.call, math.min, math.max, string.byte, string.find

-- Lua's own conversion keeps 14 digits; microseconds have 16.
local function text(n) return string.format('%.0f', n) end

-- kind is what the end of an id says: weight, whether it has a slot, and
-- whether its token is recorded. Most are plain, of weight 1.
local function kind(id)
  local before, dash, last = byte(id, -3, -1)
  if last == 49 and dash == 45 and before <= 57 then return 1, false, false end
  local slot, list, weight = string.match(id, '(s?)(l?)%-(%d+)$')
  return tonumber(weight or 0), slot == 's', list == 'l'
end

local raw = redis.pcall('GET', state)
if raw and (raw.err or string.sub(raw, 1, 4) ~= MARK) then
  return redis.error_reply('WRONGTYPE ' .. state .. ' is not sema\'s')
end
local fresh = not raw
local _           -- the mark
local limit = 0   -- 0: there is no semaphore
local used = 0    -- weight held
local token = 0   -- the last one given
local arrival = 0 -- the last place given
local keep = 0    -- until when the keys live
local first = 0   -- no lease ends before
local alarm = 0   -- when the watcher calls
local revoked = 0 -- how many holders are
local queued = 0  -- how many tickets there are
local pinned, slotted, listed = 0, 0, 0 -- 1: the limit is; slots or tokens have been used
local watcher = ''
if raw then
  _, limit, used, token, arrival, keep, first, alarm, revoked, queued, pinned, slotted, listed, watcher = struct.unpack(LAYOUT, raw)
end
if find(needs, 's', 1, true) then slotted = 1 end
if find(needs, 'l', 1, true) then listed = 1 end

-- Keys that are somebody else's are refused before anything is written. The
-- first thing that is done with holders fails by itself.
local queueing = queued > 0 or find(needs, 'w', 1, true)
local all = fresh or find(needs, 'h', 1, true)
local types = {'string', 'zset', 'zset', 'zset', 'zset', 'hash'}
for i = 2, 6 do
  if all or i == 5 and slotted == 1 or i == 6 and listed == 1 or queueing and (i == 3 or i == 4) then
    local is = call('TYPE', KEYS[i]).ok
    if is ~= 'none' and is ~= types[i] then
      return redis.error_reply('WRONGTYPE ' .. KEYS[i] .. ' is a ' .. is .. ', not sema\'s ' .. types[i])
    end
  end
end

local touched = {} -- keys that may have been created in this step

if fresh then
  -- First use, or the state was deleted under its holders: count anew what is
  -- there, and take the keys' time to live from themselves.
  for i = 2, 6 do keep = max(keep, now + call('PTTL', KEYS[i]) * 1000) end
  local from = 0
  repeat
    local some = call('ZRANGE', holders, from, from + 999)
    for _, id in ipairs(some) do
      used = used + kind(id)
      if byte(id) == 33 then revoked = revoked + 1 end
    end
    from = from + 1000
  until #some < 1000
  queued = call('ZCARD', waiters)
  slotted, listed = 1, 1
end

-- With its memory full the server refuses whatever may need more, but nothing
-- after a first write. Releases and renewals must pass, also those that travel
-- with acquisitions.
if find(needs, 'f', 1, true) then call('ZREM', holders, '') end

local extended = false -- the keys' time to live must be set anew

local function remember(lease)
  if keep < now + lease + MINUTE then
    keep = now + 2 * (lease + MINUTE)
    extended = true
  end
end

local function next_token()
  token = max(token + 1, now)
  return token
end

-- put gives permits a lease. All that is written to holders goes through here,
-- or lowers first itself.
local function put(id, lease_end)
  call('ZADD', holders, text(lease_end), id)
  first = min(first, lease_end)
end

-- Whoever empties holders deletes the key, and its time to live.
local function created() if used == 0 then touched[holders] = true end end

-- forget removes a permit; member is its id, or "!id".
local function forget(member)
  if call('ZREM', holders, member) == 0 then return false end
  local weight, slot, list = kind(member)
  used = used - weight
  local id = member
  if byte(member) == 33 then
    id = string.sub(member, 2)
    revoked = revoked - 1
  end
  if slot then call('ZREM', slots, id) end
  if list then call('HDEL', tokens, id) end
  return true
end

-- find_first makes first exact.
local function find_first()
  local head = call('ZRANGE', holders, 0, 0, 'WITHSCORES')
  if head[1] then
    first = tonumber(head[2])
  else
    first, used, revoked = NEVER, 0, 0 -- holds even if the key was deleted
  end
end

-- Permits whose lease is over are gone before anything else happens.
if first <= now then
  find_first()
  while first <= now do
    for _, member in ipairs(call('ZRANGEBYSCORE', holders, '-inf', text(now), 'LIMIT', 0, 500)) do
      forget(member)
    end
    find_first()
  end
end

-- take makes a holder; its slot is the lowest that is free. Slots are distinct
-- numbers, so as many as x of them below x means that none is free there.
local function take(id, lease_end)
  local weight, slotting, listing = kind(id)
  created()
  put(id, lease_end)
  used = used + weight
  local slot = -1
  if slotting then
    local low, high = 0, call('ZCARD', slots)
    while low < high do
      local mid = math.floor((low + high) / 2)
      if call('ZCOUNT', slots, 0, mid) == mid + 1 then low = mid + 1 else high = mid end
    end
    slot = low
    call('ZADD', slots, slot, id)
    touched[slots] = true
  end
  local t = next_token()
  if listing then
    call('HSET', tokens, id, text(t))
    touched[tokens] = true
  end
  return t, slot
end

-- News for clients: what their inbox gets at the end of the step.
local news = {}
local function tell(who)
  if not news[who] then news[who] = {grants = {}} end
  return news[who]
end

-- A client that nobody listens for is not reached; the caller always is.
local reached = {[caller] = true}
local function client(id) return string.match(id, '^!?([^-]+)') end
local function reach(who)
  if reached[who] == nil then
    local count = redis.call('PUBSUB', byte(who) == 115 and 'SHARDNUMSUB' or 'NUMSUB', inbox .. who)
    reached[who] = tonumber(count[2]) > 0
  end
  return reached[who]
end

-- The queue. settled: nothing has changed since its head did not fit.
local settled = false
local head, head_arrival -- of the queue; nil: not known
local handed = {}        -- permits that were handed over in this step: token, slot, how many before
local hands = 0          -- how many that were

local function get_head()
  if not head and queued > 0 then
    local found = call('ZRANGE', waiters, 0, 0, 'WITHSCORES')
    head, head_arrival = found[1], tonumber(found[2])
    if not head then queued = 0 end -- somebody deleted the key
  end
  return queued > 0 and head
end

-- drop removes a ticket.
local function drop(id)
  if queued == 0 or call('ZREM', waiters, id) == 0 then return false end
  call('ZREM', tickets, id)
  queued, head, settled = queued - 1, nil, false
  return true
end

-- grant hands free weight to the head of the queue, as far as it goes.
local function grant()
  while queued > 0 and not settled do
    local ids = call('ZRANGE', waiters, 0, max(1, min(queued, limit - used, 500)) - 1)
    if not ids[1] then queued = 0 return end -- somebody deleted the key
    local ends = call('ZMSCORE', tickets, unpack(ids))
    local done = 0
    for i, id in ipairs(ids) do
      local ticket_end = tonumber(ends[i] or 0)
      local weight = kind(id)
      if ticket_end <= now then
        -- fell silent
      elseif weight > limit then
        tell(client(id)).ask = true -- could never be served; asking again tells its client
      elseif used + weight > limit then
        settled = true
        break
      else
        local who = client(id)
        if reach(who) then
          local t, slot = take(id, ticket_end)
          handed[id] = {t, slot, hands}
          hands = hands + 1
          tell(who).grants[id] = string.format('g %s %.0f %d %.0f\n', id, t, slot, ticket_end)
        end
      end
      done = i
    end
    if done > 0 then
      call('ZREMRANGEBYRANK', waiters, 0, done - 1)
      call('ZREM', tickets, unpack(ids, 1, done))
      queued, head = queued - done, nil
    end
  end
end

local out = {0, ''}
local function answer(status, n)
  out[#out + 1] = status
  out[#out + 1] = n
end
local function granted(n, t, slot, left)
  answer(GRANTED, n)
  out[#out + 1] = t
  out[#out + 1] = slot
  out[#out + 1] = left
end
local asker      -- the last ticket of the caller in this step
local looks = {} -- where the answers of its tickets say when to look
local function waits(n, place, ahead, ticket_end)
  answer(QUEUED, n)
  out[#out + 1] = place
  out[#out + 1] = ahead
  out[#out + 1] = ticket_end
  out[#out + 1] = 0
  looks[#looks + 1] = #out
end

local function known_token(id) return tonumber(call('HGET', tokens, id) or 0) end
local function known_slot(id) return tonumber(call('ZSCORE', slots, id) or -1) end

-- ask carries out one acquisition. from: what was handed over after that many
-- others was handed over on its behalf.
local function ask(id, want, lease, ticket_life, place, flags, from)
  local weight, slotting, listing = kind(id)
  local held_until = call('ZSCORE', holders, id)
  if held_until and not (handed[id] and handed[id][3] >= from) then
    -- Its client never saw the first answer. Where the token was not recorded,
    -- nobody knows it, and a newer one serves as well.
    granted(1, listing and known_token(id) or next_token(), slotting and known_slot(id) or -1, tonumber(held_until) - now)
    return
  end
  if revoked > 0 and call('ZSCORE', holders, '!' .. id) then return answer(REVOKED, 1) end
  if want ~= limit and find(flags, 'x', 1, true) then
    drop(id)
    return answer(LIMIT_DIFFERS, 1)
  end
  if weight > limit then
    drop(id)
    return answer(TOO_HEAVY, 1)
  end
  grant()
  if handed[id] then -- its turn came just now
    put(id, now + lease)
    tell(caller).grants[id] = nil
    return granted(1, handed[id][1], handed[id][2], lease)
  end
  local next_one = get_head()
  local mine = next_one and call('ZSCORE', waiters, id)
  if (not next_one or next_one == id or (place > 0 and place < head_arrival) or find(flags, 'u', 1, true)) and used + weight <= limit then
    if mine then drop(id) end
    local t, slot = take(id, now + lease)
    return granted(1, t, slot, lease)
  end
  if not find(flags, 'w', 1, true) then return answer(REFUSED, 1) end
  if mine then
    mine = tonumber(mine)
  else
    mine = place > 0 and place or max(arrival + 1, now)
    arrival = max(arrival, mine)
    call('ZADD', waiters, text(mine), id)
    queued, head = queued + 1, nil
    touched[waiters], touched[tickets] = true, true
  end
  call('ZADD', tickets, text(now + ticket_life), id)
  asker = id
  waits(1, mine, call('ZRANK', waiters, id), now + ticket_life)
end

-- known reports whether any, and whether all, of ids have a score.
local function known(key, ids)
  local any, all = false, true
  for _, score in ipairs(call('ZMSCORE', key, unpack(ids))) do
    if score then any = true else all = false end
  end
  return any, all
end

-- scored is ids with a score before each, and flag if any, for ZADD.
local function scored(score, ids, step)
  local list, fixed = {}, step == 0 and text(score)
  for i, id in ipairs(ids) do
    list[2 * i - 1] = fixed or text(score + step * (i - 1))
    list[2 * i] = id
  end
  return list
end

-- take_all grants plain permits of one weight, as many of ids as are free, and
-- returns how many it answered.
local function take_all(ids, weight, lease, listing)
  local n = min(#ids, math.floor((limit - used) / weight))
  if n < 1 then return 0 end
  if n < #ids then ids = {unpack(ids, 1, n)} end
  created()
  local lease_end = now + lease
  local added = call('ZADD', holders, 'NX', unpack(scored(lease_end, ids, 0)))
  used, first = used + added * weight, min(first, lease_end)
  if added < n then -- some are held: their client never saw the first answer
    for _, id in ipairs(ids) do
      local t = listing and call('HGET', tokens, id)
      if not t then
        t = next_token()
        if listing then call('HSET', tokens, id, text(t)) end
      end
      granted(1, tonumber(t), -1, tonumber(call('ZSCORE', holders, id)) - now)
    end
    return n
  end
  local t = next_token()
  token = t + n - 1
  granted(n, t, -1, lease)
  if listing then
    local list = {}
    for i, id in ipairs(ids) do
      list[2 * i - 1] = id
      list[2 * i] = text(t + i - 1)
    end
    call('HSET', tokens, unpack(list))
    touched[tokens] = true
  end
  return n
end

-- acquire carries out a run of acquisitions. Plain ones are done together: no
-- slots, nobody passes others, nothing to refuse.
local function acquire(ids, places, want, lease, ticket_life, weight, flags)
  if limit == 0 and weight > want then -- and there still is no semaphore
    out[1] = want
    return answer(TOO_HEAVY, #ids)
  end
  if limit == 0 then limit = want end
  remember(lease)
  local from = NEVER
  local waiting = find(flags, 'w', 1, true)
  local plain = revoked == 0 and weight <= limit and not find(flags, '[us]') and (want == limit or not find(flags, 'x', 1, true))
  local queued_any, queued_all = false, false
  if plain and queued > 0 then queued_any, queued_all = known(waiters, ids) end

  if plain and places and waiting and queued_all and not known(holders, ids) then
    from = hands
    local before = queued
    grant()
    if queued == before then -- all of them go on waiting
      call('ZADD', tickets, unpack(scored(now + ticket_life, ids, 0)))
      for _, id in ipairs(ids) do
        waits(1, tonumber(call('ZSCORE', waiters, id)), call('ZRANK', waiters, id), now + ticket_life)
      end
      asker = ids[#ids]
      return
    end
  elseif plain and not places and not queued_any then
    grant()
    while queued == 0 do -- again where some that were held already took no room
      local n = take_all(ids, weight, lease, find(flags, 'l', 1, true))
      if n == #ids then return end
      if n == 0 then break end
      ids = {unpack(ids, n + 1)}
    end
    if not known(holders, ids) then
      if not waiting then return answer(REFUSED, #ids) end
      local place = max(arrival + 1, now)
      if queued == 0 then touched[waiters], touched[tickets] = true, true end
      if call('ZADD', waiters, unpack(scored(place, ids, 1))) == #ids then
        arrival = place + #ids - 1
        call('ZADD', tickets, unpack(scored(now + ticket_life, ids, 0)))
        waits(#ids, place, queued, now + ticket_life)
        queued = queued + #ids
        asker = ids[#ids]
        return
      end
      queued, head, arrival = call('ZCARD', waiters), nil, place + #ids - 1 -- one id twice: go on one by one
    end
  end
  for i, id in ipairs(ids) do
    ask(id, want, lease, ticket_life, places and places[i] or 0, flags, i == 1 and from or NEVER)
  end
end

-- renew carries out a run of renewals.
local function renew(ids, lease, flags)
  local lease_end = now + lease
  if call('ZADD', holders, 'XX', 'CH', unpack(scored(lease_end, ids, 0))) == #ids and flags == '' then
    first = min(first, lease_end)
    remember(lease)
    return granted(#ids, 0, -1, lease)
  end
  for _, id in ipairs(ids) do
    if call('ZSCORE', holders, id) then
      put(id, lease_end)
      remember(lease)
      local _, slotting, listing = kind(id)
      granted(1, listing and known_token(id) or 0, slotting and known_slot(id) or -1, lease)
    elseif revoked > 0 and call('ZSCORE', holders, '!' .. id) then
      answer(REVOKED, 1)
    else
      answer(GONE, 1)
    end
  end
end

-- take_back forgets that a permit was handed over in this step.
local function take_back(id)
  if handed[id] then
    handed[id] = nil
    tell(client(id)).grants[id] = nil
  end
end

-- release carries out a run of releases.
local function release(ids, weight, flags)
  settled = false
  if revoked == 0 and hands == 0 and not find(flags, 's', 1, true) then
    local _, all = known(holders, ids)
    if all then
      local removed = call('ZREM', holders, unpack(ids))
      used = used - removed * weight
      if find(flags, 'l', 1, true) then call('HDEL', tokens, unpack(ids)) end
      if removed == #ids then
        answer(1, removed)
      else -- one id twice
        local seen = {}
        for _, id in ipairs(ids) do
          answer(seen[id] and 0 or 1, 1)
          seen[id] = true
        end
      end
      return grant()
    end
  end
  for _, id in ipairs(ids) do
    take_back(id)
    local found = forget(id) or (revoked > 0 and forget('!' .. id)) or drop(id)
    answer(found and 1 or 0, 1)
    settled = false
    grant()
  end
end

local function revoke(id)
  take_back(id)
  local lease_end = call('ZSCORE', holders, id)
  if lease_end then
    put('!' .. id, tonumber(lease_end)) -- first, lest the key goes, and its time to live
    call('ZREM', holders, id)
    revoked = revoked + 1
  elseif revoked > 0 then
    lease_end = call('ZSCORE', holders, '!' .. id)
  end
  answer(lease_end and 1 or 0, 1)
end

-- watch sees to it that some client calls when the first lease ends, if anybody
-- waits. Whoever asks is told when that is; so only a lease that ends before
-- all that were known needs a message, to the ticket that joined last.
local function watch()
  find_first()
  if first == NEVER then
    alarm, watcher = 0, ''
    return
  end
  for _, at in ipairs(looks) do out[at] = first - now end
  while queued > 0 do
    if watcher ~= '' and now < alarm and alarm <= first and call('ZSCORE', tickets, watcher) then return end
    alarm = first
    if asker and call('ZSCORE', tickets, asker) then
      watcher = asker
      return
    end
    local tail = call('ZRANGE', waiters, -1, -1)[1]
    if not tail then
      queued = 0 -- somebody deleted the key
    elseif tonumber(call('ZSCORE', tickets, tail) or 0) > now and reach(client(tail)) then
      watcher, tell(client(tail)).look = tail, first - now
      return
    else
      drop(tail)
    end
  end
  alarm, watcher = 0, ''
end

local i = 6
while ARGV[i] do
  local op = ARGV[i]
  if op == 'A' or op == 'Q' then
    local n = tonumber(ARGV[i + 6])
    local ids, places = {}, nil
    if op == 'A' then
      ids = {unpack(ARGV, i + 7, i + 6 + n)}
    else
      places = {}
      for k = 1, n do
        ids[k], places[k] = ARGV[i + 5 + 2 * k], tonumber(ARGV[i + 6 + 2 * k])
      end
      n = 2 * n
    end
    acquire(ids, places, tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]), tonumber(ARGV[i + 3]), tonumber(ARGV[i + 4]), ARGV[i + 5])
    i = i + 7 + n
  elseif op == 'N' or op == 'R' then
    local n = tonumber(ARGV[i + 3])
    local ids = {unpack(ARGV, i + 4, i + 3 + n)}
    if op == 'N' then renew(ids, tonumber(ARGV[i + 1]), ARGV[i + 2]) else release(ids, tonumber(ARGV[i + 1]), ARGV[i + 2]) end
    i = i + 4 + n
  elseif op == 'K' then
    revoke(ARGV[i + 1])
    i = i + 2
  else
    limit, settled = tonumber(ARGV[i + 1]), false
    if ARGV[i + 2] == '1' then pinned, extended = 1, true end
    remember(0)
    answer(1, 1)
    grant()
    i = i + 3
  end
end
if queued > 0 then
  grant()
  watch()
elseif alarm > 0 then
  alarm, watcher = 0, ''
end

local left = math.ceil((keep - now) / 1000)
if limit > 0 then
  local packed = struct.pack(LAYOUT, MARK, limit, used, token, arrival, keep, first, alarm, revoked, queued, pinned, slotted, listed, watcher)
  if pinned == 1 then
    call('SET', state, packed)
  elseif extended or fresh then
    call('SET', state, packed, 'PX', left)
  else
    call('SET', state, packed, 'KEEPTTL')
  end
end
if extended then
  for i = 2, 6 do
    if call('TYPE', KEYS[i]).ok == types[i] then call('PEXPIRE', KEYS[i], left) end
  end
else
  for key in pairs(touched) do call('PEXPIRE', key, left) end
end
if ARGV[3] ~= '' then call('SET', KEYS[7], ARGV[3], 'PX', ARGV[4]) end

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
    redis.pcall(byte(who) == 115 and 'SPUBLISH' or 'PUBLISH', inbox .. who, message)
  end
end
if limit > 0 then out[1] = limit end
return out
