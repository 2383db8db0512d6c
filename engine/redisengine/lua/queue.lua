-- What step does not do by itself: waiting, handing over, and whatever is not
-- plain. It is a function of its own because making functions costs the more,
-- the more local variables they share: plain steps do without these.

-- Lua's own conversion keeps 14 digits; microseconds have 16. %d is several
-- times as fast as %.0f, where it has them.
local INTEGER = string.format('%d', 1e15) == '1000000000000000' and '%d' or '%.0f'
local function text(n) return string.format(INTEGER, n) end

-- kind is what the end of an id says: weight, whether it has a slot, and
-- whether its token is recorded. Most are plain, of weight 1.
local function kind(id)
  local before, dash, last = string.byte(id, -3, -1)
  if last == 49 and dash == 45 and before <= 57 then return 1, false, false end
  local slot, list, weight = string.match(id, '(s?)(l?)%-(%d+)$')
  return tonumber(weight or 0), slot == 's', list == 'l'
end

-- remember sees to it that the keys outlive a lease that begins now.
local function remember(s, lease)
  if s.keep < now + lease + 60000000 then
    s.keep = now + 2 * (lease + 60000000)
    s.extended = true
  end
end

-- forget removes a permit; member is its id, or "!id".
local function forget(s, member)
  if redis.call('ZREM', KEYS[2], member) == 0 then return false end
  local weight, slot, list = kind(member)
  s.used = s.used - weight
  local id = member
  if string.byte(member) == 33 then
    id = string.sub(member, 2)
    s.revoked = s.revoked - 1
  end
  if slot then redis.call('ZREM', KEYS[5], id) end
  if list then redis.call('HDEL', KEYS[6], id) end
  return true
end

-- find_first makes s.first exact.
local function find_first(s)
  local head = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
  if head[1] then
    s.first = tonumber(head[2])
  else
    s.first, s.used, s.revoked = math.huge, 0, 0 -- holds even if the key was deleted
  end
end

-- general carries out the operations from ARGV[i] on, but for the first few ids
-- of the first one.
local function general(s, i, skip)
  local GRANTED, QUEUED, REFUSED, GONE, REVOKED, TOO_HEAVY, LIMIT_DIFFERS = 1, 2, 3, 4, 5, 6, 7
  local holders, waiters, tickets, slots, tokens = KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
  local call, find, byte, caller, out, touched = redis.call, string.find, string.byte, ARGV[1], s.out, s.touched

  local function answer(status, n)
    out[#out + 1] = status
    out[#out + 1] = n
  end

  local function granted(token, slot, left)
    answer(GRANTED, 1)
    out[#out + 1] = token
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

  local function next_token()
    s.token = math.max(s.token + 1, now)
    return s.token
  end

  -- put gives a permit a lease.
  local function put(id, lease_end)
    call('ZADD', holders, text(lease_end), id)
    s.first = math.min(s.first, lease_end)
  end

  -- take makes a holder; its slot is the lowest that is free. Slots are distinct
  -- numbers, so as many as x of them below x means that none is free there.
  local function take(id, lease_end)
    local weight, slotting, listing = kind(id)
    if s.used == 0 then touched[holders] = true end
    put(id, lease_end)
    s.used = s.used + weight
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
    local token = next_token()
    if listing then
      call('HSET', tokens, id, text(token))
      touched[tokens] = true
    end
    return token, slot
  end

  -- News for clients: what their inbox gets at the end of the step.
  local function tell(who)
    local news = s.news
    if not news[who] then news[who] = {grants = {}} end
    return news[who]
  end

  -- A client that nobody listens for is not reached; the caller always is.
  local reached = {[caller] = true}
  local function client(id) return string.match(id, '^!?([^-]+)') end
  local function reach(who)
    if reached[who] == nil then
      local inbox = string.sub(KEYS[1], 1, -6) .. 'inbox:' .. who
      local count = redis.call('PUBSUB', string.byte(who) == 115 and 'SHARDNUMSUB' or 'NUMSUB', inbox)
      reached[who] = tonumber(count[2]) > 0
    end
    return reached[who]
  end

  local settled = false    -- nothing has changed since the head of the queue did not fit
  local head, head_arrival -- of the queue; nil: not known
  local handed = {}        -- permits that were handed over in this step: token, slot, how many before
  local hands = 0          -- how many that were

  local function get_head()
    if not head and s.queued > 0 then
      local found = call('ZRANGE', waiters, 0, 0, 'WITHSCORES')
      head, head_arrival = found[1], tonumber(found[2])
      if not head then s.queued = 0 end -- somebody deleted the key
    end
    return s.queued > 0 and head
  end

  -- drop removes a ticket.
  local function drop(id)
    if s.queued == 0 or call('ZREM', waiters, id) == 0 then return false end
    call('HDEL', tickets, id)
    s.queued, head, settled = s.queued - 1, nil, false
    return true
  end

  -- grant hands free weight to the head of the queue, as far as it goes.
  local function grant()
    while s.queued > 0 and not settled do
      local ids = call('ZRANGE', waiters, 0, math.max(1, math.min(s.queued, s.limit - s.used, 500)) - 1)
      if not ids[1] then -- somebody deleted the key
        s.queued = 0
        return
      end
      local ends = call('HMGET', tickets, unpack(ids))
      local done, plain = 0, {}
      for k, id in ipairs(ids) do
        local ticket_end = tonumber(ends[k] or 0)
        local weight, slotting, listing = kind(id)
        if ticket_end <= now then
          -- fell silent
        elseif weight > s.limit then
          tell(client(id)).ask = true -- could never be served; asking again tells its client
        elseif s.used + weight > s.limit then
          settled = true
          break
        else
          local who = byte(id, #caller + 1) == 45 and string.sub(id, 1, #caller) == caller and caller or client(id)
          if reach(who) then
            local token, slot
            if slotting or listing then
              token, slot = take(id, ticket_end)
            else
              if s.used == 0 then touched[holders] = true end
              s.used, s.first = s.used + weight, math.min(s.first, ticket_end)
              token, slot = next_token(), -1
              plain[#plain + 1] = ends[k]
              plain[#plain + 1] = id
            end
            handed[id] = {token, slot, hands}
            hands = hands + 1
            tell(who).grants[id] = 'g ' .. id .. ' ' .. text(token) .. ' ' .. slot .. ' ' .. ends[k] .. '\n'
          end
        end
        done = k
      end
      if plain[1] then call('ZADD', holders, unpack(plain)) end
      if done > 0 then
        call('ZREMRANGEBYRANK', waiters, 0, done - 1)
        call('HDEL', tickets, unpack(ids, 1, done))
        s.queued, head = s.queued - done, nil
      end
    end
  end

  -- open_queue makes the keys of an empty queue ready for the first ticket. A
  -- small hash is a list that is searched from the start, unless it had a value
  -- of more than 64 bytes.
  local function open_queue()
    if s.queued == 0 then
      touched[waiters], touched[tickets] = true, true
      call('HSET', tickets, '', string.rep(' ', 65))
    end
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
      granted(listing and known_token(id) or next_token(), slotting and known_slot(id) or -1, tonumber(held_until) - now)
      return
    end
    if s.revoked > 0 and call('ZSCORE', holders, '!' .. id) then return answer(REVOKED, 1) end
    if want ~= s.limit and find(flags, 'x', 1, true) then
      drop(id)
      return answer(LIMIT_DIFFERS, 1)
    end
    if weight > s.limit then
      drop(id)
      return answer(TOO_HEAVY, 1)
    end
    grant()
    if handed[id] then -- its turn came just now
      put(id, now + lease)
      tell(caller).grants[id] = nil
      return granted(handed[id][1], handed[id][2], lease)
    end
    local next_one = get_head()
    local mine = next_one and call('ZSCORE', waiters, id)
    local first = not next_one or next_one == id or (place > 0 and place < head_arrival) or find(flags, 'u', 1, true)
    if first and s.used + weight <= s.limit then
      if mine then drop(id) end
      local token, slot = take(id, now + lease)
      return granted(token, slot, lease)
    end
    if not find(flags, 'w', 1, true) then return answer(REFUSED, 1) end
    if mine then
      mine = tonumber(mine)
    else
      mine = place > 0 and place or math.max(s.arrival + 1, now)
      s.arrival = math.max(s.arrival, mine)
      open_queue()
      call('ZADD', waiters, text(mine), id)
      s.queued, head = s.queued + 1, nil
    end
    call('HSET', tickets, id, text(now + ticket_life))
    asker = id
    waits(1, mine, call('ZRANK', waiters, id), now + ticket_life)
  end

  -- held reports whether any of ids is a holder.
  local function held(ids)
    for _, score in ipairs(call('ZMSCORE', holders, unpack(ids))) do
      if score then return true end
    end
    return false
  end

  -- renew_tickets gives tickets a new life, and returns how many were none before.
  local function renew_tickets(ids, ticket_end)
    local list, at = {}, text(ticket_end)
    for k, id in ipairs(ids) do
      list[2 * k - 1] = id
      list[2 * k] = at
    end
    return call('HSET', tickets, unpack(list))
  end

  -- acquire carries out a run of acquisitions: together if they all wait.
  local function acquire(ids, places, want, lease, ticket_life, weight, flags)
    if s.limit == 0 and weight > want then -- and there still is no semaphore
      out[1] = want
      return answer(TOO_HEAVY, #ids)
    end
    if s.limit == 0 then s.limit = want end
    remember(s, lease)
    local from = math.huge
    if s.revoked == 0 and weight <= s.limit and find(flags, 'w', 1, true) and not find(flags, 'u', 1, true)
      and (want == s.limit or not find(flags, 'x', 1, true)) and not held(ids) then
      from = hands
      local before = s.queued
      if places then
        local all, mine = before > 0, before > 0 and call('ZMSCORE', waiters, unpack(ids)) or {}
        for _, place in ipairs(mine) do all = all and place end
        if all then
          grant()
          if s.queued == before then -- all of them go on waiting
            renew_tickets(ids, now + ticket_life)
            for k, id in ipairs(ids) do
              waits(1, tonumber(mine[k]), call('ZRANK', waiters, id), now + ticket_life)
            end
            asker = ids[#ids]
            return
          end
        end
      else
        grant()
        local turned = false
        for _, id in ipairs(ids) do turned = turned or handed[id] end
        -- They wait if the head of the queue does not fit, or there is none and
        -- no room.
        if not turned and (s.queued > 0 or s.used + weight > s.limit) then
          open_queue()
          if renew_tickets(ids, now + ticket_life) == #ids then
            local place = math.max(s.arrival + 1, now)
            s.arrival = place + #ids - 1
            local list = {}
            for k, id in ipairs(ids) do
              list[2 * k - 1] = text(place + k - 1)
              list[2 * k] = id
            end
            call('ZADD', waiters, unpack(list))
            waits(#ids, place, s.queued, now + ticket_life)
            s.queued = s.queued + #ids
            asker = ids[#ids]
            return
          end
          for _, id in ipairs(ids) do -- some were queued before
            if not call('ZSCORE', waiters, id) then call('HDEL', tickets, id) end
          end
        end
      end
    end
    for k, id in ipairs(ids) do
      ask(id, want, lease, ticket_life, places and places[k] or 0, flags, k == 1 and from or math.huge)
    end
  end

  local function renew(id, lease)
    if call('ZSCORE', holders, id) then
      put(id, now + lease)
      remember(s, lease)
      local _, slotting, listing = kind(id)
      granted(listing and known_token(id) or 0, slotting and known_slot(id) or -1, lease)
    elseif s.revoked > 0 and call('ZSCORE', holders, '!' .. id) then
      answer(REVOKED, 1)
    else
      answer(GONE, 1)
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
    local found = forget(s, id) or (s.revoked > 0 and forget(s, '!' .. id)) or drop(id)
    answer(found and 1 or 0, 1)
    settled = false
    grant()
  end

  local function revoke(id)
    take_back(id)
    local lease_end = call('ZSCORE', holders, id)
    if lease_end then
      put('!' .. id, tonumber(lease_end)) -- first, lest the key goes, and its time to live
      call('ZREM', holders, id)
      s.revoked = s.revoked + 1
    elseif s.revoked > 0 then
      lease_end = call('ZSCORE', holders, '!' .. id)
    end
    answer(lease_end and 1 or 0, 1)
  end

  -- watch sees to it that some client calls when the first lease ends, if anybody
  -- waits. Whoever asks is told when that is; so only a lease that ends before
  -- all that were known needs a message, to the ticket that joined last.
  local function watch()
    if s.queued > 0 then find_first(s) end
    if s.queued > 0 and s.first < math.huge then
      for _, at in ipairs(looks) do out[at] = s.first - now end
    end
    while s.queued > 0 and s.first < math.huge do
      if s.watcher ~= '' and now < s.alarm and s.alarm <= s.first and call('HEXISTS', tickets, s.watcher) == 1 then return end
      s.alarm = s.first
      if asker and call('HEXISTS', tickets, asker) == 1 then
        s.watcher = asker
        return
      end
      local tail = call('ZRANGE', waiters, -1, -1)[1]
      if not tail then
        s.queued = 0 -- somebody deleted the key
      elseif tonumber(call('HGET', tickets, tail) or 0) > now and reach(client(tail)) then
        s.watcher, tell(client(tail)).look = tail, s.first - now
        return
      else
        drop(tail)
      end
    end
    s.alarm, s.watcher = 0, ''
  end

  if s.released then grant() end
  while ARGV[i] do
    local op = ARGV[i]
    if op == 'A' or op == 'Q' then
      local n = tonumber(ARGV[i + 6])
      local ids, places = nil, nil
      if op == 'A' then
        ids = {unpack(ARGV, i + 7 + skip, i + 6 + n)}
      else
        ids, places = {}, {}
        for k = 1, n do
          ids[k], places[k] = ARGV[i + 5 + 2 * k], tonumber(ARGV[i + 6 + 2 * k])
        end
        n = 2 * n
      end
      acquire(ids, places, tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]), tonumber(ARGV[i + 3]), tonumber(ARGV[i + 4]), ARGV[i + 5])
      i = i + 7 + n
    elseif op == 'N' or op == 'R' then
      local n, lease = tonumber(ARGV[i + 3]), tonumber(ARGV[i + 1])
      for k = i + 4 + skip, i + 3 + n do
        if op == 'N' then renew(ARGV[k], lease) else release(ARGV[k]) end
      end
      i = i + 4 + n
    elseif op == 'K' then
      revoke(ARGV[i + 1])
      i = i + 2
    else
      s.limit, settled = tonumber(ARGV[i + 1]), false
      if ARGV[i + 2] == '1' then s.pinned, s.extended = 1, true end
      remember(s, 0)
      answer(1, 1)
      grant()
      i = i + 3
    end
    skip = 0
  end
  grant()
  watch()
end
