-- The rules. Package internal/ledger is their specification, and most functions
-- have the names of its functions. They are made only for a call that plain.lua
-- could not carry out, because making functions costs.
--
-- The files, in the order of a call:
--
--   layout.lua  constants: the data in the keys, and the formats of calls and replies
--   first.lua   reads the arguments and the head of the state, and refuses late calls
--   plain.lua   the fast path: one request while nobody waits; plainpools.lua its part for pools
--   last.lua    any other call: it carries out the requests by the rules, writes the changes, and publishes the messages
--   rules.lua   this file: ask, renew, release, the loop that grants unless a pause or a cooldown halts it, the queues, what clients
--               may keep and are told
--   store.lua   reads and writes s
--   rare.lua    what few steps need: permits that callers named, what operators change, reports, cooldowns, limits that are only watched, repairs
--   keys.lua    keys with names: their tree, and the order among them
--   units.lua   what plainpools.lua and pools.lua both need
--   pools.lua   pools, and what is kept free of them; rates.lua those that come back with time, and what releases settle of them
--
-- state.lua is a script of its own: it shows a semaphore.
--
-- s is the semaphore: the fields of STATE, the entries that the step has read, and its changes.
-- Changes are collected in s and written at the end of the step: so an error on the way leaves
-- nothing half done, and a batch needs few commands.
--
--   s.known            entries of the state by id; false: there is none
--   s.fields, changed  entries to write, in this order
--   s.ends             leases to write in holders; false: to remove
--   s.joins, leaves    tickets to add to the lines, then tickets to remove
--   s.paused           an operator lets nobody be granted a permit
--   s.observed         what is counted while the limit is only watched; nil: it is enforced
--   s.cooldown         until when nobody is granted a permit; nil: there is no cooldown
--   s.due              when time will have brought what some ticket waits for, in whole
--
-- A semaphore without keys has one key, '', in s.only. Its tickets are in KEYS[3], and
-- nothing else of it is stored. keys.lua has the rules that only keys with names need;
-- there s.only is nil.
--
-- s.settled means that nothing can be granted, because the first runnable ticket waits for weight. This ticket is s.front_head,
-- and its key is s.front. Each change that could let it go on sets s.settled to false.
--
-- Each function here is a field of table R. rare.lua has those that few steps need.

-- ask answers an ask: granted, queued or refused. q is its run of requests.
ask = function(s, q, id)
  local key, caps_differ = q.key or '', (q.caps or s.caps) and R.caps_differ(q.caps, s.caps)
  local pools_differ = (q.pools or '') ~= (s.there or '')
  local begins = s.limit == 0 or q.pin and not s.pinned -- it says what limit, caps and pools there are from now on
  local new = begins and (s.limit == 0 or q.limit ~= s.limit or caps_differ or pools_differ or q.observe ~= (s.observed ~= nil))
  local known = R.lookup(s, id) -- false for most asks, which makes them cheaper
  if begins and not known and not q.observe then
    if q.weight > q.limit then return R.answer(s, TOO_HEAVY, q.limit, 0, 0) end
    local pool, most = 0, 0
    if string.find(key, '\2', 1, true) then pool, most = R.too_small_at_first(q) end
    if pool > 0 then return R.answer(s, TOO_HEAVY, most, 0, pool) end
  elseif known and q.who and (s.key_of[id] or '') ~= key then
    return R.answer(s, IN_USE, 0, 0, 0)
  end
  if s.only and (key ~= '' or (q.caps or q.pools) and new) then R.name_keys(s) end
  if new or s.keep < q.keep then R.open(s, q, new) end
  local of, late = '', nil
  if q.who or known and #known > PERMIT_SIZE then of, late = R.claim(s, q, id, known) end
  local is, token, slot
  if known then is, token, slot = R.holder(s, id) end
  if is and not s.handed[id] then
    if is ~= 'h' then return R.answer(s, REVOKED, 0, 0, 0) end
    return R.answer(s, GRANTED, token, slot, R.end_of(s, id) - s.now)
  end
  if known and not is and select(4, R.ticket(s, id)) == 2 then return R.answer(s, REVOKED, 0, 0, 0) end
  if q.strict and not s.observed and (q.limit ~= s.limit or (caps_differ or pools_differ) and not new) then
    R.drop(s, id)
    return R.answer(s, LIMIT_DIFFERS, 0, 0, 0)
  end
  local counted = known and R.ticket(s, id) and (s.key_of[id] or '') or key
  local k, takes, set, backfills = s.only or R.asked(s, counted), '', nil, false
  local most, depth, pool = R.limits(s), 0, 0
  if not s.only then
    most, depth = R.most_of(s, k)
    if string.find(counted, '\2', 1, true) then takes, set = R.takes(counted) end
  end
  if q.weight <= most and set and not s.observed then
    local limit
    pool, limit = R.too_small(s.pools, takes)
    if pool > 0 then most, depth = limit, 0 end
  end
  if q.weight > most or pool > 0 then
    R.drop(s, id)
    return R.answer(s, TOO_HEAVY, most, depth, pool)
  end
  if set then R.drop_silent(s, set) end
  local place = s.now - q.waited
  if s.queued > 0 then R.grant(s, q.wait and place or math.huge) end -- only tickets with earlier places: this ask may go before the others
  if s.pools then
    backfills = s.complete and R.backfills(s, k, q.weight, takes, set)
    R.end_round(s)
  end
  local old_end, old_place, old_insist, _
  if known then
    is, token, slot = R.holder(s, id)
    if is then -- the ticket was granted in this step
      s.handed[id] = nil
      R.extend(s, id, s.now + q.lease)
      if q.who and not late then R.give(s, id, s.caller) end
      return R.answer(s, GRANTED, token, slot, q.lease)
    end
    old_end, old_place, _, old_insist = R.ticket(s, id)
  end
  if not old_end and not s.only then
    k = R.asked(s, key)
    takes, set = '', nil
    if string.find(key, '\2', 1, true) then takes, set = R.takes(key) end
    s.key_of[id] = key
  end
  if not R.halted(s) and q.weight <= R.limits(s) - s.used and (s.only or R.keys_fit(s, k, q.weight)) and (not set or R.pools_fit(s, takes)) and (s.queued == 0 or q.unfair or backfills or R.none_ahead(s, set and R.class(s, k, set) or k, q, id, place)) then
    if old_end then R.unqueue(s, id) end
    token, slot = R.take(s, id, q.weight, q.slot, s.now + q.lease, of)
    if q.who and not late then R.give(s, id, s.caller) end
    R.reschedule(s, k)
    return R.answer(s, GRANTED, token, slot, q.lease)
  end
  if not q.wait then
    R.drop(s, id)
    s.refused = true
    return R.answer(s, REFUSED, s.used, 0, 0)
  end
  if set and not old_end and R.too_many_sets(s, set) then return R.answer(s, TOO_MANY, 0, 0, 0) end
  -- A client that asks again is alive. If it cannot be notified, its ticket
  -- insists: it is granted in its order, and the client learns of it with its next
  -- ask.
  local insist = q.again and 1 or 0
  if old_end then insist = (old_insist == 1 or q.again and not R.hears(s, s.caller)) and 1 or 0 end
  local class, ticket, stays, ahead = set and R.class(s, k, set) or k, s.now + q.ticket, old_end and old_place <= place and not q.anew, nil
  if old_end and not stays then R.unqueue(s, id) end -- this call came faster than the earlier ones, or the ticket is for another caller now
  R.put(s, id, struct.pack(TICKET, 'q', ticket, stays and old_place or place, q.behind, insist) .. of, not known)
  if stays then ahead = R.position(s, class, id, old_place) else ahead = R.enqueue(s, class, id, place) end
  R.reschedule(s, k)
  s.asker, s.again = id, s.again or q.again
  return R.answer(s, QUEUED, ticket, ahead, 0)
end,

-- none_ahead reports whether an ask goes before all tickets that wait for
-- weight.
none_ahead = function(s, k, q, id, place)
  if k.n < s.queued and R.others_ahead(s, k) then return false end
  local head, head_place = R.queue_head(s, k)
  return k.n == 0 or head == id or q.wait and place < head_place
end,

-- renew extends a permit.
renew = function(s, q, id)
  local is, token, slot = R.holder(s, id)
  if not is then return R.answer(s, GONE, 0, 0, 0) end
  if is ~= 'h' then return R.answer(s, REVOKED, 0, 0, 0) end
  s.handed[id] = nil
  if q.again and R.via(s, id) ~= R.client(id) then R.give(s, id, s.caller) end
  s.token = math.max(s.token, q.token)
  R.extend(s, id, s.now + q.lease)
  R.remember(s, q.lease)
  R.answer(s, GRANTED, token, slot, q.lease)
end,

-- release removes a permit or a ticket. If the permit belongs to another client,
-- that client is told to renew, and so learns of the loss. If a session gives up
-- its own named permit because its caller has gone, the rival session gets it
-- instead.
release = function(s, q, id)
  local found, token = R.holder(s, id)
  local via, rival = s.caller, ''
  if q.others and R.lookup(s, id) then via, rival = R.via(s, id) end
  if via == s.caller and q.again and rival ~= '' then
    R.set_owner(s, id, rival, '')
    R.tell(s, rival).ask = true
    return R.answer(s, GONE, 0, 0, 0)
  end
  if via ~= s.caller and q.again -- Mine: only a permit or ticket of this session
    or q.others and via ~= R.client(id) and q.token > 0 and R.lookup(s, id) and q.token ~= token then
    if rival == s.caller then R.set_owner(s, id, via, '') end
    return R.answer(s, GONE, 0, 0, 0) -- the token is of an earlier permit under this id
  end
  s.handed[id] = nil
  if found then
    s.token = math.max(s.token, q.token)
    if q.used then R.settle_rates(s, id, q.used) end
    R.forget(s, id)
    if via ~= s.caller then R.tell(s, via).renew = true end
  else
    found = R.drop(s, id)
  end
  R.answer(s, found and DONE or GONE, 0, 0, 0)
end,

-- grant serves and drops tickets in the order of service, up to a place in the queue, until the next one is blocked. Each
-- ticket that is done with ends a round, because what it gives or takes may change who is next. What the last round has
-- reserved stays reserved until end_round: an ask uses it, see backfills. A ticket whose client cannot be told is dropped;
-- if its client lives, it asks again and is back in its place.
--
-- s.left is a ticket that it leaves to the next step because the budget is spent; nil: there is none.
grant = function(s, up_to)
  s.complete, s.left = false, nil
  if s.queued == 0 then return end
  s.left = not s.only and R.sweep(s) or nil
  while not s.settled and not R.halted(s) do
    local k, id, is, weight, slot, ticket, insist = R.next(s, up_to)
    if not k then return end
    if s.budget <= 0 then
      s.left = s.left or id
      return
    end
    local who, value, granted = (R.via(s, id)), s.known[id], false
    s.budget = s.budget - 1 - (s.pools and math.floor(R.waiting_sets(s) / SETS_PER_COST) or 0)
    if s.round then R.end_round(s) end
    R.unqueue(s, id, k)
    if is == REFUSE then
      R.tell(s, who).ask = true -- the answer to the next ask says why
    elseif is == SERVE and (insist == 1 or R.reach(s, who)) then
      granted = insist ~= 2
      R.hand_over(s, id, weight, slot, ticket, who, value, not granted)
    end
    if granted and not s.only then R.served(s, k, weight) else R.reschedule(s, k.of) end
  end
end,

-- go_on tells a client to ask again at once. It is the client of the ticket. If that one is silent or cannot be told, it is the
-- client that watches, or else the caller of the step.
go_on = function(s, id)
  local who = R.via(s, id)
  if (R.ticket(s, id) or 0) <= s.now or not R.reach(s, who) then
    who = s.caller
    local watcher = s.watcher ~= '' and (R.ticket(s, s.watcher) or 0) > s.now and R.via(s, s.watcher)
    if watcher and R.reach(s, watcher) then who = watcher end
  end
  R.tell(s, who).recheck = 1
end,

-- halted reports whether all grants are stopped: by an operator, or for a while.
halted = function(s) return s.paused or s.cooldown end,

-- limits returns how much weight all may hold: the limit, or anything while it is only watched.
limits = function(s) return s.observed and WATCHED - 1 or s.limit end,

-- next finds the ticket that is to be served or dropped next, up to a place in the queue. It returns the class, the id, the
-- verdict, and the parts of id and entry; nil: there is none.
--
-- It looks at heads in the order of service. A head that a pool blocks reserves its demand; then next looks at the classes
-- that want none of that pool. A head that the limit blocks reserves its demand and ends the round: no weight is left for
-- anybody behind it. A head that a key blocks should not have been runnable: next lists the key's classes again and starts
-- over, and nothing is reserved then. That costs budget, unless it is due to a reservation at that key.
next = function(s, up_to)
  while true do
    local k = s.only or R.next_class(s)
    if s.lost then return R.repair(s, 'q') end
    if not k or k.n == 0 then
      s.complete = true
      return nil
    end
    local id, place = R.queue_head(s, k)
    if not id then return R.repair(s, 'q') end
    if place > up_to then return nil end
    local weight, slot = R.parse_id(id)
    local ticket, _, _, insist = R.ticket(s, id)
    local takes = k.set and R.takes(s.key_of[id]) or ''
    local is, blocker = R.judge(s, k, weight, ticket, takes)
    if is == BLOCKED_BY_KEY then
      if blocker.reserved == 0 and s.budget <= 0 then return k, id, is, weight, slot, ticket, insist end
      if blocker.reserved == 0 then s.budget = s.budget - 1 end
      if blocker.reserved == 0 and s.round then R.end_round(s) end -- another may be the first of all now
      if s.round then s.round.revisit[#s.round.revisit + 1] = blocker end
      R.reschedule(s, blocker)
    elseif is == BLOCKED_BY_LIMIT and not (s.sets and s.sets[1]) then
      return R.settle(s, k, id)
    elseif is == BLOCKED_BY_LIMIT or is == BLOCKED_BY_POOL then
      R.reserve(s, k, weight, takes)
      if is == BLOCKED_BY_LIMIT then
        s.complete = true
        return nil
      end
    else
      return k, id, is, weight, slot, ticket, insist
    end
  end
end,

-- settle notes the ticket at which grant stops: until something changes for it, no step has anything to grant. With sets of
-- pools it is not so, because other sets may go on.
settle = function(s, k, id) s.settled, s.front, s.front_head = not (s.sets and s.sets[1]), k, id end,

-- judge returns what to do with the first ticket of all, and the key that blocks it, if one does. The order counts. A ticket
-- whose class should be in another list is no head at all. A silent one is dropped before it may block anybody. What is
-- impossible is never blocked.
judge = function(s, k, weight, ticket, takes)
  local impossible = not s.observed and (weight > (s.only and s.limit or R.most_of(s, k.of)) or takes ~= '' and R.too_small(s.pools, takes) > 0)
  local blocker = not s.only and not impossible and R.blocker(s, k.of, weight)
  if blocker then return BLOCKED_BY_KEY, blocker end
  if not ticket or ticket <= s.now then return DROP end
  if impossible then return REFUSE end
  if weight > R.limits(s) - s.used - s.reserved then return BLOCKED_BY_LIMIT end
  if takes ~= '' and not R.pools_fit(s, takes) then return BLOCKED_BY_POOL end
  return SERVE
end,

-- hand_over turns a ticket into a permit and notifies its client. value is the
-- ticket's entry. The permit's lease ends when the ticket would have ended.
hand_over = function(s, id, weight, slot, ticket, who, value, revoked)
  local token, index = R.take(s, id, weight, slot, ticket, #value > TICKET_SIZE and (R.tail(value)) or '')
  if revoked then
    R.put(s, id, 'r' .. string.sub(R.lookup(s, id), 2))
    R.tell(s, who).ask = true
    return
  end
  local grants = R.tell(s, who).grants
  grants[#grants + 1] = id
  s.handed[id] = 'g ' .. id .. ' ' .. string.format(INTEGER, token) .. ' ' .. index .. ' ' .. string.format(INTEGER, ticket) .. '\n'
end,

-- watch makes sure that a waiting client calls when the first lease ends, or a cooldown. It chooses the
-- last ticket of the last path whose client can be notified. Most steps need not read the
-- exact end: s.first is never later, which is often enough to know. Clients that cannot be
-- notified know it, and ask often enough. watch returns whether it has dropped tickets, which may have blocked others.
watch = function(s)
  if s.queued > 0 and (s.used > 0 or s.cooldown or s.due < math.huge) then
    local first = R.next_look(s)
    if not first then return end
    local n, stay, dropped = 1, 0, false -- number of tickets to read at once, and of those that insist
    for line = s.only and 3 or 10, 3, -7 do
      local passed = 0
      while s.queued > stay and s.budget > 0 do
        local list = R.last_of(s, line, passed, n)
        if not list[1] then break end
        R.lookup_all(s, list)
        for _, id in ipairs(list) do
          if s.budget <= 0 then break end
          local ticket, _, _, insist = R.ticket(s, id)
          if (ticket or 0) > s.now and R.reach(s, (R.via(s, id))) then
            local news = R.tell(s, (R.via(s, id)))
            s.watcher, news.recheck = id, news.recheck or math.max(1, first - s.now)
            return dropped
          elseif (ticket or 0) > s.now and insist == 1 then
            passed, stay = passed + 1, stay + 1
          elseif R.drop(s, id) then
            dropped = true
          else
            R.unqueue(s, id, {line = line})
          end
          s.budget = s.budget - 1
        end
        n = 50
      end
    end
    if s.queued > stay and s.budget > 0 then return R.repair(s, 'q') end -- a line was deleted
    s.alarm, s.watcher = 0, ''
    return dropped
  end
  s.alarm, s.watcher = 0, ''
end,

-- next_look returns when a client must be told to ask because the first lease ends;
-- nil if some client will ask by then anyway.
next_look = function(s)
  local calls = s.watcher ~= '' and s.now < s.alarm and R.ticket(s, s.watcher)
  if calls and s.alarm <= math.min(s.first, s.cooldown or s.due, s.due) then return nil end
  local first = R.next_end(s)
  if calls and s.alarm <= first then return nil end
  s.alarm = first
  if s.asker and R.ticket(s, s.asker) then
    s.watcher = s.asker
    return nil
  end
  return first
end,

-- may_keep returns 1 if the caller of the step may keep released permits until keep
-- from now, and stores that; 0 otherwise. A client that cannot be notified must
-- give them back, because a recall would not reach it.
may_keep = function(s, keep)
  if keep <= 0 or R.stopped(s) or not R.hears(s, s.caller) or R.others_wait(s) then
    if s.keepers > s.now then
      R.begin(s)
      redis.pcall('HDEL', KEYS[6], s.caller)
    end
    return 0
  end
  local ends = s.now + keep
  R.begin(s)
  local room = not s.only and R.none_runnable(s) and s.queued > 0
  local new = redis.pcall('HSET', KEYS[6], s.caller, struct.pack(KEPT, room and 1 or 0, ends))
  if new ~= 0 and new ~= 1 then return 0 end -- the key is foreign
  s.keeps = math.max(s.keeps, ends)
  if new == 1 or s.keepers < ends then
    s.keepers = math.max(s.keepers, ends + keep + IDLE)
    redis.call('PEXPIRE', KEYS[6], math.ceil((s.keepers - s.now) / 1000))
  end
  return 1
end,

-- stopped reports whether released weight may go to no client now.
stopped = function(s) return s.limit == 0 or s.observed or s.paused or s.cooldown or s.used > s.limit or s.keyed and s.keyed.over > 0 or s.pools and R.pool_over(s) end,

-- others_wait reports whether any other client than the caller of the step has a
-- ticket. With more than MAX_LOOKED tickets it does not look, and reports true.
others_wait = function(s)
  if s.settled and R.client(s.front_head) ~= s.caller or s.queued > MAX_LOOKED then return s.queued > 0 end
  R.write_lines(s)
  local own, size = s.caller .. '-', #s.caller + 1
  for line = 3, s.only and 3 or 10, 7 do
    local from, list = 0, nil
    repeat
      list = redis.call('ZRANGE', KEYS[line], from, from + 99)
      for _, member in ipairs(list) do
        local at = line == 10 and (string.find(member, '\0', 1, true) or 0) + 9 or 1
        if string.sub(member, at, at + size - 1) ~= own then return true end
      end
      from = from + 100
    until not list[100]
  end
  return false
end,

-- recall takes back what may_keep allowed other clients: if the caller of the step waits, if nothing may be granted, or
-- if the step has changed the limit. If a key waits for weight, it notifies those that were told that no key does.
-- Notifications get lost, so each step repeats them until the client makes a step of its own. One step notifies
-- at most MAX_TOLD clients; the next step goes on. recall reports whether another client keeps permits while the
-- caller waits.
recall = function(s, waits)
  local stopped, recalled, keeps, gone, told = R.stopped(s), false, 0, {}, 0
  local in_turn = not s.only and not R.none_runnable(s)
  if s.keeps <= s.now or not stopped and not s.limited and not in_turn and not waits then return false end
  local list = redis.pcall('HGETALL', KEYS[6])
  if list.err then return false end
  for i = 1, #list, 2 do
    local who = list[i]
    local room, ends = struct.unpack(KEPT, list[i + 1])
    local over = stopped or in_turn and room == 1
    if ends <= s.now then
      gone[#gone + 1] = who
    elseif who ~= s.caller then
      keeps = math.max(keeps, ends)
      if (over or waits or s.limited) and told < MAX_TOLD then
        R.tell(s, who).recall, told = true, told + 1
      end
      recalled = recalled or waits and not over
    end
  end
  s.keeps = keeps
  if gone[1] then
    R.begin(s)
    R.bulk('HDEL', KEYS[6], gone)
  end
  return recalled
end,

-- take makes a permit, with the lowest free slot. Slots are distinct numbers:
-- if x of them are below x, none below x is free. of is the tail of a named
-- permit, or ''.
take = function(s, id, weight, slotted, lease_end, of)
  local slot, waits = -1, s.observed and R.would_wait(s, id, weight)
  if waits then
    slot, s.pools = -WOULD_WAIT, s.pools or not s.only and {} or nil -- it may take of a pool that there is not
  elseif slotted then
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
  s.token, s.used = math.max(s.token + 1, s.now), s.used + weight
  local takes = s.pools and R.takes(s.key_of[id]) or ''
  if not s.only then R.hold(s, R.key_of(s, id), weight, takes) end
  if s.rated and takes ~= '' and not waits then R.spend(s, id, takes) end
  if s.observed then R.count_grant(s, waits) end
  R.put(s, id, struct.pack(PERMIT, 'h', s.token, s.now, slot) .. of)
  R.extend(s, id, lease_end)
  return s.token, slot
end,

-- extend sets the end of a permit's lease.
extend = function(s, id, lease_end)
  s.ends[id], s.moved = lease_end, true
  s.first = math.min(s.first, lease_end)
end,

-- forget removes a permit.
forget = function(s, id)
  local weight, slot = R.parse_id(id)
  local k = s.only or R.key_of(s, id)
  s.used, s.settled, s.moved = s.used - weight, false, true
  if not s.only then R.hold(s, k, -weight, s.pools and R.takes(s.key_of[id]) or '') end
  R.put(s, id, false)
  s.ends[id], s.removes, s.spent[id] = false, true, nil
  if slot then
    R.begin(s)
    redis.call('ZREM', KEYS[4], id)
  end
  R.reschedule(s, k)
end,

-- enqueue puts a ticket into its place, and returns how many tickets of its key are
-- before it. Most tickets are the last of their key, which needs no command. The caller
-- repositions the key.
enqueue = function(s, k, id, place)
  local last, line, member, score = k.n == 0, k.line, id, 0
  if not last and not k.tail then
    local tail, places = R.some(s, k, 0, 1, true)
    k.tail, k.tail_place = tail[1] or '', places[1] or math.huge
  end
  if line == 3 then score = string.format(INTEGER, place) else member = R.member(k, id, place) end
  local joins = s.joins[line] or {}
  joins[#joins + 1], joins[#joins + 2], s.joins[line] = score, member, joins
  if s.leaves[line] then s.leaves[line][member] = nil end -- the ticket may have left in this step
  if last then s.new_lines[line] = true end
  s.queued = s.queued + 1
  if s.only then k.n = k.n + 1 else R.count(s, k, 1) end
  if last or k.head and place < k.head_place then k.head, k.head_place, k.heads = id, place, nil elseif k.head and place == k.head_place then k.head, k.heads = nil, nil end
  if last or place > k.tail_place then
    k.tail, k.tail_place = id, place
    return k.n - 1
  end
  if place == k.tail_place then k.tail = nil end
  k.heads = nil -- the ticket may belong among them
  return R.position(s, k, id, place)
end,

-- unqueue removes a ticket from its line. The caller repositions the key. The member may be
-- foreign, that is, no ticket: then it was not counted, and k is the key of the line.
unqueue = function(s, id, k)
  local _, place = R.ticket(s, id)
  k = s.only or place and (s.pools and R.class_of(s, id) or R.key_of(s, id)) or k
  if place then
    R.put(s, id, false)
    s.queued = s.queued - 1
    if s.only then k.n = k.n - 1 else R.count(s, k, -1) end
  end
  local leaves = s.leaves[k.line] or {}
  leaves[k.line == 3 and id or place and R.member(k, id, place) or s.foreign[id]], s.leaves[k.line] = false, leaves
  if id == k.tail then k.tail = nil end
  if id == k.head then
    k.head, k.changed = nil, true
    if k.heads then
      table.remove(k.heads, 1)
      table.remove(k.places, 1)
    end
  else
    k.heads = nil
  end
end,

-- drop removes a ticket, and reports whether there was one.
drop = function(s, id)
  if not R.ticket(s, id) then return false end
  local k = s.only or R.key_of(s, id)
  R.unqueue(s, id)
  R.reschedule(s, k)
  return true
end,

-- position returns how many tickets of its key are before a ticket.
position = function(s, k, id, place)
  if id == k.head then return 0 end
  R.write_lines(s)
  if k.line == 3 then return redis.call('ZRANK', KEYS[3], id) or 0 end
  return redis.call('ZLEXCOUNT', KEYS[10], '[' .. k.path .. '\0', '(' .. R.member(k, id, place))
end,

-- last_of returns up to n tickets of a line, the last ones first, without the last from.
last_of = function(s, line, from, n)
  R.write_lines(s)
  local list = redis.call('ZREVRANGE', KEYS[line], from, from + n - 1)
  if line == 3 then return list end
  s.read_lines = true
  for i, member in ipairs(list) do
    list[i] = string.sub(member, (string.find(member, '\0', 1, true) or 0) + 9)
    s.foreign[list[i]] = member
  end
  return list
end,

-- some returns up to n tickets of a key in order, without the first from, and their
-- places; backwards counts from the last one.
some = function(s, k, from, n, backwards)
  R.write_lines(s)
  if k.line == 10 then return R.some_named(s, k, from, n, backwards) end
  local all, list, places = redis.call(backwards and 'ZREVRANGE' or 'ZRANGE', KEYS[3], from, from + n - 1, 'WITHSCORES'), {}, {}
  for i = 1, #all, 2 do
    list[#list + 1], places[#places + 1] = all[i], tonumber(all[i + 1])
  end
  return list, places
end,

-- queue_head returns the first ticket of a leaf's class, and its place. For the key '' it reads as many tickets
-- at once as free weight could serve, and one more.
queue_head = function(s, k)
  if k.head or k.n == 0 then return k.head, k.head_place end
  k.changed = true
  if not k.heads or not k.heads[1] then
    k.heads, k.places = R.some(s, k, 0, k.line == 3 and math.max(1, math.min(R.limits(s) - s.used + 1, k.n, 500)) or 1)
    if k.line == 3 then R.lookup_all(s, k.heads) end
  end
  k.head, k.head_place = k.heads[1], k.places[1]
  return k.head, k.head_place
end,

-- reschedule puts the classes of a key into their lists, and then those above it, after its first
-- ticket, its weight or its rule has changed.
reschedule = function(s, k)
  if s.only then
    if k.head ~= s.front_head then s.settled = false end
    return
  end
  while k do
    if s.sets[1] then R.schedule(s, k) else R.list(s, k) end
    k = k.up
  end
end,

-- expire removes permits whose leases have ended, at most MAX_ENDS. The next
-- steps remove the others: until then holder no longer finds them, but their
-- weight counts as held.
expire = function(s)
  -- A state that is pinned or paused outlives the keys holders and waiters. A key lives whole milliseconds.
  if s.keep + 2000 <= s.now and s.used + s.queued > 0 then
    R.repair(s, 'h')
    R.repair(s, 'q')
    s.first, s.moved = math.huge, false
    return
  end
  if s.first > s.now then return end
  local list = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', string.format(INTEGER, s.now), 'LIMIT', 0, MAX_ENDS)
  R.lookup_all(s, list)
  for _, id in ipairs(list) do
    if R.holder(s, id) then R.forget(s, id) end
    s.ends[id] = false
  end
  if not redis.call('ZSCORE', KEYS[2], KEEPER) then R.repair(s, 'h') end -- the key was deleted
  local after = redis.call('ZRANGE', KEYS[2], #list, #list, 'WITHSCORES')
  s.first, s.moved = tonumber(after[2] or math.huge), false
  s.behind = s.first <= s.now
end,

-- next_end returns when a lease ends, or a cooldown, or time has brought what a ticket waits for.
next_end = function(s)
  if s.moved ~= false then
    R.write_holders(s)
    local list = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
    if not list[1] then R.repair(s, 'h') end -- KEEPER is missing: the key was deleted
    s.first, s.moved = tonumber(list[2] or math.huge), false
  end
  return math.min(s.first, s.cooldown or s.due, s.due)
end,

-- answer answers the next request. It adds the answer to the last RECORD if
-- that can represent both.
answer = function(s, status, a, b, c)
  local l, n = s.last, s.last.n
  if status == l.status and (status == GRANTED and a == l.a + n and b == -1 and l.b == -1 and c == l.c
    or status == QUEUED and a == l.a and b == l.b + n or status > QUEUED and a == l.a and b == l.b and c == l.c) then
    l.n = n + 1
    return
  end
  if n > 0 then s.out[#s.out + 1] = struct.pack(RECORD, l.status, n, l.a, l.b, l.c) end
  l.status, l.n, l.a, l.b, l.c = status, 1, a, b, c
end,

-- reach reports whether a client can be notified. The caller of the step can:
-- by the reply.
reach = function(s, who) return who == s.caller or R.hears(s, who) end,

-- hears reports whether a client has a subscription to its inbox.
hears = function(s, who)
  if s.heard[who] == nil then
    local count = redis.call('PUBSUB', string.byte(who) == 115 and 'SHARDNUMSUB' or 'NUMSUB', s.inbox .. who)
    s.heard[who] = tonumber(count[2]) > 0
  end
  return s.heard[who]
end,

-- tell returns the notification that a client gets at the end of the step, to
-- be added to.
tell = function(s, who)
  local news = s.news[who]
  if not news then
    news = {grants = {}}
    s.news[who] = news
  end
  return news
end,
