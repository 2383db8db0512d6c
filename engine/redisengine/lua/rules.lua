-- The rules, as functions of the same names as those of package internal/ledger,
-- which is their specification. They are made only when plain.lua could not do
-- all, because making functions costs.
--
-- s is the semaphore: the fields of STATE, and what the step knows and has
-- changed. Writes wait in s until the step's end, so that an error on the way
-- leaves nothing behind, and a batch is written at once: s.known has what the
-- state says of ids (false: nothing), s.fields and then s.changed are what is to
-- be written of it; s.ends, and s.joins and then s.places, are changes of
-- holders and waiters (false: to be removed).
--
-- Each function here is a field of the table R. Those that few steps need are in rare.lua.

-- ask grants, queues or refuses. q is the run of requests.
ask = function(s, q, id)
  if s.limit == 0 and q.weight > q.limit then return R.answer(s, TOO_HEAVY, q.limit, 0, 0) end
  if q.names and (q.key ~= '' or q.per_key > 0 and (s.limit == 0 or q.pin and not s.pinned)) then
    R.name_keys(s)
    return R.ask(s, q, id)
  end
  if s.limit == 0 or s.keep < q.keep or q.pin and not s.pinned and s.limit ~= q.limit then R.open(s, q) end
  local known = s.known[id] -- false for most: then much can be left out
  if known == nil then known = R.look(s, id) end
  local of, late = '', nil
  if q.who or known and #known > PERMIT_SIZE then of, late = R.claim(s, q, id, known) end
  local is, token, slot
  if known then is, token, slot = R.holder(s, id) end
  if is and not s.handed[id] then
    if is ~= 'h' then return R.answer(s, REVOKED, 0, 0, 0) end
    return R.answer(s, GRANTED, token, slot, R.end_of(s, id) - s.now)
  end
  if q.strict and (q.limit ~= s.limit or (q.per_key or 0) > 0) then
    R.drop(s, id)
    return R.answer(s, LIMIT_DIFFERS, 0, 0, 0)
  end
  if q.weight > s.limit then
    R.drop(s, id)
    return R.answer(s, TOO_HEAVY, s.limit, 0, 0)
  end
  local place = s.now - q.waited
  if s.queued > 0 and not s.settled then R.grant(s, q.wait and place or math.huge) end -- those who came later may have to wait for this one
  if known then is, token, slot = R.holder(s, id) end
  if is then -- its turn came in this step
    R.untell(s, id)
    R.extend(s, id, s.now + q.lease)
    if q.who and not late then R.give(s, id, s.caller) end
    return R.answer(s, GRANTED, token, slot, q.lease)
  end
  local first = not s.paused and (q.unfair or s.queued == 0 or s.head == id or q.wait and place < s.head_place)
  if first and q.weight <= s.limit - s.used then
    if known then R.drop(s, id) end
    token, slot = R.take(s, id, q.weight, q.slot, s.now + q.lease, of)
    if q.who and not late then R.give(s, id, s.caller) end
    return R.answer(s, GRANTED, token, slot, q.lease)
  end
  if not q.wait then
    R.drop(s, id)
    s.refused = true
    return R.answer(s, REFUSED, 0, 0, 0)
  end
  local ticket, ahead, insist, old_end, old_place, _ = s.now + q.ticket, nil, q.again and 1 or 0, nil, nil, nil
  if known then
    local old_insist
    old_end, old_place, _, old_insist = R.ticket(s, id)
    -- A client that asks again is alive: its ticket is granted in turn even if it
    -- cannot be notified, and it finds out when it asks next.
    if old_end then insist = (old_insist == 1 or q.again and not R.hears(s, s.caller)) and 1 or 0 end
  end
  if old_end and old_place <= place and not q.anew then
    ahead = R.position(s, id)
    R.put(s, id, struct.pack(TICKET, 'q', ticket, old_place, q.behind, insist) .. of)
  else
    if old_end then R.drop(s, id) end -- this call took less time than those before, or is another caller's
    ahead = R.enqueue(s, id, place)
    R.put_new(s, id, struct.pack(TICKET, 'q', ticket, place, q.behind, insist) .. of)
  end
  s.asker, s.again = id, s.again or q.again
  return R.answer(s, QUEUED, ticket, ahead, 0)
end,

-- ask_all carries out a run of asks. Those who come last, as most do, share
-- what has been found for the one before them.
ask_all = function(s, q, from, n, at)
  local l, ticket, alike = s.last, s.now + q.ticket, false
  for k = from, from + n - 1 do
    local id = ARGV[k]
    q.waited, q.behind, at = struct.unpack(ASKED, call, at)
    if q.others then q.who, at = struct.unpack(NAMED, call, at) end
    if q.names then q.key, at = struct.unpack(KEY_NAME, call, at) end
    local place = s.now - q.waited
    if alike and not s.keyed and not q.key and s.tail and place > s.tail_place and s.known[id] == false then
      R.enqueue(s, id, place)
      R.put_new(s, id, struct.pack(TICKET, 'q', ticket, place, q.behind, q.again and 1 or 0) .. (q.who and R.claim(s, q, id, false) or ''))
      s.asker, l.n = id, l.n + 1
    else
      R.ask(s, q, id)
      alike = not s.keyed and q.wait and not q.unfair and s.settled and l.status == QUEUED and l.a == ticket and l.b + l.n == s.queued
    end
  end
  return at
end,

-- renew extends a permit.
renew = function(s, q, id)
  local is, token, slot = R.holder(s, id)
  if not is then return R.answer(s, GONE, 0, 0, 0) end
  if is ~= 'h' then return R.answer(s, REVOKED, 0, 0, 0) end
  R.untell(s, id)
  if q.again and R.via(s, id) ~= R.client(id) then R.give(s, id, s.caller) end
  s.token = math.max(s.token, q.token)
  R.extend(s, id, s.now + q.lease)
  R.remember(s, q.lease)
  R.answer(s, GRANTED, token, slot, q.lease)
end,

-- release gives back a permit or leaves the queue. A client whose permit was
-- given back by another renews, and so hears of it. A session that gives back what
-- is its own, because its caller has gone, leaves it to its rival.
release = function(s, q, id)
  local found, token = R.holder(s, id)
  local via, rival = s.caller, ''
  if q.others and R.look(s, id) then via, rival = R.via(s, id) end
  if via == s.caller and q.again and rival ~= '' then
    R.belongs(s, id, rival, '')
    R.tell(s, rival).ask = true
    return R.answer(s, GONE, 0, 0, 0)
  end
  if via ~= s.caller and q.again -- only its own
    or q.others and via ~= R.client(id) and q.token > 0 and R.look(s, id) and q.token ~= token then
    if rival == s.caller then R.belongs(s, id, via, '') end
    return R.answer(s, GONE, 0, 0, 0) -- what is meant was given back, and asked for anew since
  end
  R.untell(s, id)
  if found then
    s.token = math.max(s.token, q.token)
    R.forget(s, id)
    if via ~= s.caller then R.tell(s, via).renew = true end
  else
    found = R.drop(s, id)
  end
  R.answer(s, found and DONE or GONE, 0, 0, 0)
end,

-- grant hands free weight to the head of the queue, as far as it goes, and up
-- to a place in it. It reads as many tickets at once as there may be room for,
-- and one more. A ticket whose client cannot be told is dropped, once.
grant = function(s, up_to)
  while s.queued > 0 and not s.settled and not s.paused do
    R.write_waiters(s)
    local list = redis.call('ZRANGE', KEYS[3], 0, math.max(0, math.min(s.limit - s.used, s.queued - 1, 500)))
    if not list[1] then return R.mend(s, 'q') end
    R.look_all(s, list)
    for _, id in ipairs(list) do
      local ticket, place, _, insist = R.ticket(s, id)
      local weight, slot = R.shape(id)
      local who, value = (R.via(s, id)), s.known[id]
      if ticket then
        s.head, s.head_place = id, place
        if place > up_to then return end
        if ticket > s.now and weight <= s.limit and weight > s.limit - s.used then
          s.settled = true
          break
        end
        if s.turns == 0 then
          R.tell(s, who).ask = true -- and go on with that
          s.settled = true
          break
        end
        s.turns = s.turns - 1
      end
      R.unqueue(s, id)
      if not ticket or ticket <= s.now then
        -- fell silent
      elseif weight > s.limit then
        R.tell(s, who).ask = true -- could never be served; asking again tells its client
      elseif insist == 1 or R.reach(s, who) then
        R.hand_over(s, id, weight, slot, ticket, who, value)
      end
    end
  end
end,

-- hand_over makes a permit of a ticket, whose value this is, and tells its client. The
-- permit lives as long as the ticket did.
hand_over = function(s, id, weight, slot, ticket, who, value)
  local token, index = R.take(s, id, weight, slot, ticket, (R.tail(value)))
  local grants = R.tell(s, who).grants
  grants[#grants + 1] = id
  s.handed[id] = 'g ' .. id .. ' ' .. string.format(INTEGER, token) .. ' ' .. index .. ' ' .. string.format(INTEGER, ticket) .. '\n'
end,

-- watch sees to it that somebody calls when the first lease ends, if anybody
-- waits. s.first is no later than that, which mostly tells enough. Clients that
-- cannot be notified, and know it, ask often enough.
watch = function(s)
  if s.queued > 0 and s.used > 0 then
    local first = R.next_look(s)
    if not first then return end
    local passed, n = 0, 1 -- of those that came last: passed over, and looked at at once
    while s.queued > passed and s.turns > 0 do
      R.write_waiters(s)
      local list = redis.call('ZRANGE', KEYS[3], -passed - n, -passed - 1)
      if not list[1] then return R.mend(s, 'q') end
      R.look_all(s, list)
      for k = #list, 1, -1 do
        if s.turns == 0 then break end
        local id = list[k]
        local ticket, _, _, insist = R.ticket(s, id)
        if (ticket or 0) > s.now and R.reach(s, (R.via(s, id))) then
          s.watcher, R.tell(s, (R.via(s, id))).recheck = id, math.max(1, first - s.now)
          return
        elseif (ticket or 0) > s.now and insist == 1 then
          passed = passed + 1
        else
          R.unqueue(s, id)
        end
        s.turns = s.turns - 1
      end
      n = 50
    end
  end
  s.alarm, s.watcher = 0, ''
end,

-- next_look is when somebody has to look at the first lease that ends, and be told so;
-- nil: somebody will.
next_look = function(s)
  local calls = s.watcher ~= '' and s.now < s.alarm and R.ticket(s, s.watcher)
  if calls and s.alarm <= s.first then return nil end
  local first = R.next_end(s)
  if calls and s.alarm <= first then return nil end
  s.alarm = first
  if s.asker and R.ticket(s, s.asker) then
    s.watcher = s.asker
    return nil
  end
  return first
end,

-- leave decides what the caller of the step may do with permits that are
-- released to it, for keep from now on, and notes that it was told so. A client
-- that cannot be notified may do nothing: nobody could tell it to stop.
leave = function(s, keep)
  if keep <= 0 or R.stopped(s) or not R.hears(s, s.caller) then
    if s.keepers > s.now then
      R.begin(s)
      redis.pcall('HDEL', KEYS[6], s.caller)
    end
    return 0
  end
  local what, ends = R.others_wait(s) and PASS_ON or KEEP_ON, s.now + keep
  R.begin(s)
  local room = s.keyed and R.room(s) and redis.call('ZCARD', KEYS[8]) > 0
  local new = redis.pcall('HSET', KEYS[6], s.caller, struct.pack(KEPT, what + (room and 4 or 0), ends))
  if new ~= 0 and new ~= 1 then return 0 end -- the key is somebody else's
  if what == KEEP_ON then s.keeps = math.max(s.keeps, ends) end
  if new == 1 or s.keepers < ends then
    s.keepers = math.max(s.keepers, ends + keep + IDLE)
    redis.call('PEXPIRE', KEYS[6], math.ceil((s.keepers - s.now) / 1000))
  end
  return what
end,

-- stopped reports whether what is released may go to nobody.
stopped = function(s) return s.limit == 0 or s.paused or s.used > s.limit end,

-- others_wait reports whether another client than the caller of the step has a
-- ticket. A client has few, so one of another is found soon.
others_wait = function(s)
  if s.settled and s.head and s.queued > 0 and not s.paused and R.client(s.head) ~= s.caller then return true end
  R.write_waiters(s)
  for from = 0, s.queued - 1, 100 do
    for _, id in ipairs(redis.call('ZRANGE', KEYS[3], from, from + 99)) do
      if R.client(id) ~= s.caller then return true end
    end
  end
  return false
end,

-- recall takes back from other clients what leave allowed them. If the caller of
-- the step waits, those that keep permits are told; if nothing may be granted, or the
-- step has changed the limit, all are. Notifications get lost, so each step tells them again until they make one
-- of their own; but no more than MAX_TOLD of them, and the next step tells others.
-- It reports whether another client keeps while the caller waits. s.keepers is no
-- earlier than the end of what any client was told, s.keeps than that of any that
-- may keep.
recall = function(s, waits)
  local stopped, recalled, keeps, gone, told = R.stopped(s), false, 0, {}, 0
  local in_turn = s.keyed and not R.room(s)
  if s.keepers <= s.now or not stopped and not s.limited and not in_turn and (not waits or s.keeps <= s.now) then return false end
  local all = stopped or s.limited
  local list = redis.pcall('HGETALL', KEYS[6])
  if list.err then return false end
  for i = 1, #list, 2 do
    local who = list[i]
    local what, ends = struct.unpack(KEPT, list[i + 1])
    local over = stopped or in_turn and what >= 4
    what = what % 4
    if ends <= s.now then
      gone[#gone + 1] = who
    elseif who ~= s.caller then
      if what == KEEP_ON then keeps = math.max(keeps, ends) end
      local kept = waits and what == KEEP_ON
      if (all or over or kept) and told < MAX_TOLD then
        R.tell(s, who).recall, told = (all or over) and 2 or 1, told + 1
      end
      recalled = recalled or not over and kept
    end
  end
  s.keeps = keeps
  if gone[1] then
    R.begin(s)
    R.bulk('HDEL', KEYS[6], gone)
  end
  return recalled
end,

-- take makes a holder; its slot is the lowest that is free. Slots are distinct
-- numbers, so as many as x of them below x means that none is free there. of is
-- the tail of a named one, or ''.
take = function(s, id, weight, slotted, lease_end, of)
  local slot = -1
  if slotted then
    local low, high = 0, redis.call('ZCARD', KEYS[4])
    s.new_slots = s.new_slots or high == 0
    while low < high do
      local middle = math.floor((low + high) / 2)
      if redis.call('ZCOUNT', KEYS[4], 0, middle) == middle + 1 then low = middle + 1 else high = middle end
    end
    slot = low
    R.begin(s)
    redis.call('ZADD', KEYS[4], slot, id)
    s.slots = true
  end
  s.token = math.max(s.token + 1, s.now)
  s.used = s.used + weight
  R.put(s, id, struct.pack(PERMIT, 'h', s.token, s.now, slot) .. of)
  R.extend(s, id, lease_end)
  return s.token, slot
end,

-- extend gives a permit another end of its lease.
extend = function(s, id, lease_end)
  s.ends[id], s.moved = lease_end, true
  s.first = math.min(s.first, lease_end)
end,

-- forget removes a permit.
forget = function(s, id)
  local weight, slot = R.shape(id)
  s.used, s.settled, s.moved = s.used - weight, false, true
  R.put(s, id, false)
  s.ends[id], s.removes = false, true
  if slot then
    R.begin(s)
    redis.call('ZREM', KEYS[4], id)
  end
end,

-- enqueue puts a ticket into its place, and returns how many are before it.
-- A ticket that comes last, as most do, costs no call.
enqueue = function(s, id, place)
  if not s.tail then
    R.write_waiters(s)
    local list = redis.call('ZRANGE', KEYS[3], -1, -1, 'WITHSCORES')
    if s.queued == 0 then s.new_waiters = true end
    s.tail, s.tail_place = list[1] or '', tonumber(list[2] or -math.huge)
  end
  s.places[id] = nil -- it may have left in this step
  local n = s.n_joins
  s.joins[n + 1], s.joins[n + 2], s.n_joins = string.format(INTEGER, place), id, n + 2
  s.queued = s.queued + 1
  if place > s.tail_place or place == s.tail_place and id > s.tail then
    s.tail, s.tail_place = id, place
    if s.queued == 1 then s.head, s.head_place, s.settled = id, place, true end
    return s.queued - 1
  end
  s.settled = false -- it may be the head
  return R.position(s, id)
end,

-- drop removes a ticket, and reports whether there was one.
drop = function(s, id)
  if not R.ticket(s, id) then return false end
  R.write_waiters(s) -- it may have joined in this step
  R.unqueue(s, id)
  s.settled = false
  return true
end,

-- position is where a ticket is in the queue.
position = function(s, id)
  R.write_waiters(s)
  return redis.call('ZRANK', KEYS[3], id) or 0
end,

-- expire ends the permits whose lease is over. It leaves what is more than
-- MAX_ENDS to the next steps: their weight is still taken, but they are gone.
expire = function(s)
  -- A state that is pinned or paused outlives the keys with its holders and waiters.
  if s.keep + 1000000 <= s.now and s.used + s.queued > 0 then
    R.mend(s, 'h')
    R.mend(s, 'q')
    s.first, s.moved = math.huge, false
    return
  end
  if s.first > s.now then return end
  local list = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', string.format(INTEGER, s.now), 'LIMIT', 0, MAX_ENDS)
  R.look_all(s, list)
  for _, id in ipairs(list) do
    if R.holder(s, id) then R.forget(s, id) end
    s.ends[id] = false
  end
  if not redis.call('ZSCORE', KEYS[2], KEEPER) then R.mend(s, 'h') end -- the key was deleted
  local after = redis.call('ZRANGE', KEYS[2], #list, #list, 'WITHSCORES')
  s.first, s.moved = tonumber(after[2] or math.huge), false
  s.behind = s.first <= s.now
end,

-- next_end is when the first lease ends.
next_end = function(s)
  if s.moved ~= false then
    R.write_holders(s)
    local list = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
    if not list[1] then R.mend(s, 'h') end -- not even KEEPER: the key was deleted
    s.first, s.moved = tonumber(list[2] or math.huge), false
  end
  return s.first
end,

-- answer gives the next request its answer: with the last, if it goes on.
answer = function(s, status, a, b, c)
  local l, n = s.last, s.last.n
  if status == l.status and (status == GRANTED and a == l.a + n and b == -1 and l.b == -1 and c == l.c
    or status == QUEUED and a == l.a and b == l.b + n or status > QUEUED and a == l.a) then
    l.n = n + 1
    return
  end
  if n > 0 then s.out[#s.out + 1] = struct.pack(RECORD, l.status, n, l.a, l.b, l.c) end
  l.status, l.n, l.a, l.b, l.c = status, 1, a, b, c
end,

-- reach reports whether a client can be told of something now. The caller can
-- be, by the reply.
reach = function(s, who) return who == s.caller or R.hears(s, who) end,

-- hears reports whether notifications reach a client: whether anybody listens
-- for it.
hears = function(s, who)
  if s.heard[who] == nil then
    local count = redis.call('PUBSUB', string.byte(who) == 115 and 'SHARDNUMSUB' or 'NUMSUB', s.inbox .. who)
    s.heard[who] = tonumber(count[2]) > 0
  end
  return s.heard[who]
end,

-- tell is what a client's inbox gets at the end of the step.
tell = function(s, who)
  local news = s.news[who]
  if not news then
    news = {grants = {}}
    s.news[who] = news
  end
  return news
end,

-- untell takes back that a permit was handed over in this step.
untell = function(s, id) s.handed[id] = nil end,
