-- The rules that few steps need, as functions of R like those of rules.lua and store.lua. Making functions costs,
-- so they are made at the first use of one of them.

-- claim returns the tail of the permit or ticket that is asked for, and whether the
-- ask is late. An ask is late if its caller came before the ticket's. A named permit
-- or ticket moves to the session of the step. It stays with its session if that can
-- be notified and the ask is repeated or late. Then the session of the step becomes
-- the rival, because the caller may still be there.
R.claim = function(s, q, id, known)
  if not q.who then return (R.tail(known)) end
  local _, came = R.ticket(s, id)
  local late = came and s.now - q.waited < came
  local via, rival = s.caller, ''
  if known then
    local is
    is, rival = R.via(s, id)
    if is ~= s.caller and R.reach(s, is) then
      rival = is
      if q.again or late then via, rival = is, s.caller end
    elseif is ~= s.caller and string.byte(known) ~= TICKETED and (rival == '' or rival == s.caller) then
      rival = is -- it may live and hold the permit though it cannot be notified
    elseif rival == s.caller then
      rival = ''
    end
  end
  local of = struct.pack(TAIL, via, rival) .. q.who
  if known then
    local _, before = R.tail(known)
    R.put(s, id, before .. of)
  end
  return of, late
end

-- give moves a named permit or ticket to a session. The session that had it becomes
-- the rival, if it can be notified. Of a permit it may live though it cannot; but then another rival comes first.
R.give = function(s, id, session)
  local was, rival = R.via(s, id)
  if was ~= session and (R.reach(s, was) or string.byte(R.lookup(s, id)) ~= TICKETED and (rival == '' or rival == session)) then
    rival = was
  elseif rival == session then
    rival = ''
  end
  R.set_owner(s, id, session, rival)
end

-- set_owner writes the session of a named permit or ticket, and its rival.
R.set_owner = function(s, id, session, rival)
  local tail, before = R.tail(R.lookup(s, id))
  local _, _, who = struct.unpack(TAIL, tail)
  R.put(s, id, before .. struct.pack(TAIL, session, rival) .. string.sub(tail, who))
end

-- revoke makes the next renewal of a permit fail, or the next ask of a ticket, and tells its client to make one now.
-- A ticket stays in the queue until its client gives it up. If it is its turn before, it becomes a revoked permit.
R.revoke = function(s, q, id)
  local held, value = R.holder(s, id), R.lookup(s, id)
  local ticket, place, behind = R.ticket(s, id)
  if held and (held == 'r' or not q.wait) then
    R.put(s, id, 'r' .. string.sub(value, 2))
    R.tell(s, (R.via(s, id))).renew = true
  elseif ticket then
    R.put(s, id, struct.pack(TICKET, 'q', ticket, place, behind, 2) .. string.sub(value, TICKET_SIZE + 1))
    R.tell(s, (R.via(s, id))).ask = true
  else
    return R.answer(s, held and IN_USE or GONE, 0, 0, 0)
  end
  R.answer(s, DONE, 0, 0, 0)
end

-- act notes that no copy of this call may be carried out again. It fails if the key
-- fences has a foreign type, before anything is written.
R.act = function(s)
  if not s.acts then redis.call('HGET', KEYS[5], s.caller) end
  s.acts = true
end

-- report stores the totals of the caller's holds. Totals only grow, so the
-- greater one is the later one.
R.report = function(s, q)
  local good, bad, waited = q.good, q.bad, q.waited
  local was = s.report or redis.call('HGET', KEYS[11], s.caller)
  if was then
    local good_was, bad_was, waited_was, ends = struct.unpack(REPORT, was)
    if ends > s.now then good, bad, waited = math.max(good, good_was), math.max(bad, bad_was), math.max(waited, waited_was) end
  end
  s.report = struct.pack(REPORT, math.max(good, 0), math.max(bad, 0), math.max(waited, 0), s.now + REPORTED)
  R.answer(s, DONE, 0, 0, 0)
end

-- auto_limit stores the limit that a controller found. It does not prolong the
-- life of an idle semaphore.
R.auto_limit = function(s, q)
  if s.pinned then return R.answer(s, PINNED, 0, 0, 0) end
  redis.call('HGET', KEYS[11], '') -- fails if the key has a foreign type, before anything is written
  R.put_limit(s, q.limit)
  s.auto = q.auto .. struct.pack('<d', s.now + REPORTED)
  R.answer(s, DONE, 0, 0, 0)
end

-- set_limit stores the limit; 0 leaves it unchanged. With pin, an idle semaphore
-- is not forgotten. A limit without observe is enforced.
R.set_limit = function(s, q)
  local there = q.pools and R.changed_pools(s, q.pools)
  if q.pools and not there then return R.answer(s, TOO_MANY, 0, 0, 0) end
  R.act(s)
  if q.limit > 0 then R.put_limit(s, q.limit) end
  if q.changes then
    local caps, any = {}, false
    for depth, change in ipairs(q.changes) do
      caps[depth] = change > 0 and change - 1 or s.caps and s.caps[depth] or 0
      any = any or caps[depth] > 0
    end
    if any and s.only then R.name_keys(s) end
    if not s.only then R.set_caps(s, any and caps or nil) end
  end
  if there then R.set_pools(s, there) end
  R.observe(s, q.observe or q.limit == 0 and s.observed ~= nil)
  s.settled = false
  if q.pin and not s.pinned then s.pinned, s.persist = true, true end
  R.remember(s, 0)
  R.answer(s, DONE, 0, 0, 0)
end

-- mark unpins the limit, pauses or unpauses. A semaphore that is pinned or
-- paused is not forgotten when idle.
R.mark = function(s, q)
  R.act(s)
  if q.kind == UNSET_LIMIT then
    s.pinned, s.extended = false, true
  elseif q.kind == PAUSE then
    s.paused, s.persist = true, true
  else
    if s.paused then s.paused, s.extended = false, true end
    if s.pools and s.cooldown then R.delay(s, s.now - s.cooldown) end
    s.cooldown, s.settled = nil, false
  end
  R.remember(s, 0)
  R.answer(s, DONE, 0, 0, 0)
end

-- cool stops all grants for a while. A cooldown only becomes longer, and ends by itself. Nothing of a rate comes back in it.
R.cool = function(s, q)
  R.act(s)
  local lasts = math.min(q.lease, MAX_COOLDOWN)
  if s.now + lasts > (s.cooldown or s.now) then
    if s.pools then R.delay(s, s.now + lasts - (s.cooldown or s.now)) end
    s.cooldown, s.cooled_by = s.now + lasts, q.who
    R.remember(s, lasts)
  end
  R.answer(s, DONE, 0, 0, 0)
end

-- remove deletes a semaphore without permits and tickets.
R.remove = function(s)
  if s.used > 0 or s.queued > 0 then return R.answer(s, IN_USE, 0, 0, 0) end
  s.limit, s.pinned, s.paused, s.observed, s.cooldown, s.keep, s.token = 0, false, false, nil, nil, 0, 0
  if not s.only then R.forget_keys(s) end
  if s.keepers > 0 then
    R.begin(s)
    redis.call('DEL', KEYS[6])
    s.keepers, s.keeps = 0, 0
  end
  R.answer(s, DONE, 0, 0, 0)
end

-- open makes sure that the semaphore exists. new: it begins, or the newest user has
-- another limit.
R.open = function(s, q, new)
  if new then
    R.put_limit(s, q.limit)
    if not s.only then
      R.set_caps(s, q.caps)
      R.set_pools(s, q.pools or '')
    end
    R.observe(s, q.observe)
  end
  R.remember(s, q.lease)
end

R.put_limit = function(s, limit)
  if s.limit ~= limit then s.limit, s.limited, s.settled = limit, true, false end
end

-- observe begins to only watch the limit, or to enforce it again. What was counted before is forgotten.
R.observe = function(s, on)
  if on ~= (s.observed ~= nil) then
    s.limited, s.settled = true, false
    if s.keyed then s.keyed.epoch = s.keyed.epoch + 1 end -- what caps block has changed
  end
  s.observed = on and {waits = 0, for_limit = 0, most = 0, levels = {}} or nil
end

-- would_wait reports whether the limit, caps and pools keep the demand of an id waiting when they are enforced, and counts for the limit.
R.would_wait = function(s, id, weight)
  local was, key, fits = s.observed, s.key_of[id] or '', nil
  s.observed = nil
  if s.only then
    fits = weight <= s.limit - s.used
  else
    local k, takes = R.key_of(s, id), s.pools and R.takes(key) or ''
    local poor = string.find(key, '\2', 1, true) and (takes == '' or R.too_small(s.pools, takes) > 0 or not R.pools_fit(s, takes))
    fits = not poor and weight <= s.limit - s.used and R.keys_fit(s, k, weight)
  end
  s.observed = was
  if weight > s.limit - s.used then was.for_limit = was.for_limit + 1 end
  return not fits
end

-- level_of returns the level of a weight held: the weight, or up to a sixteenth more.
R.level_of = function(held)
  local step = 1
  while step * FINE_LEVELS < held do step = step * 2 end
  return math.ceil(held / step) * step
end

-- count_grant counts a grant, after its weight was taken.
R.count_grant = function(s, waits)
  local o, at = s.observed, R.level_of(s.used)
  if waits then o.waits = o.waits + 1 end
  o.most, o.levels[at] = math.max(o.most, s.used), (o.levels[at] or 0) + 1
end

-- parse_observed reads OBSERVED, and observed_text writes it.
R.parse_observed = function(text)
  local waits, for_limit, most, all = string.match(text, '^(%d+) (%d+) (%d+);(.*)$')
  local levels = {}
  for limit, grants in string.gmatch(all, '(%d+)=(%d+)') do levels[tonumber(limit)] = tonumber(grants) end
  return {waits = tonumber(waits), for_limit = tonumber(for_limit), most = tonumber(most), levels = levels}
end

R.observed_text = function(o)
  local list = {}
  for limit, grants in pairs(o.levels) do list[#list + 1] = string.format('%.0f=%.0f', limit, grants) end
  local text = string.format('%.0f %.0f %.0f;', o.waits, o.for_limit, o.most) .. table.concat(list, ',')
  return struct.pack('<I4', #text) .. text
end

-- remember keeps the semaphore's keys for at least a lease from now, and IDLE.
-- It extends their life by more than needed, because setting times to live
-- costs.
R.remember = function(s, lease)
  if s.keep < s.now + lease + IDLE then
    s.keep, s.extended = s.now + 2 * (lease + IDLE), true
  end
end

-- tail returns the tail of a named permit or ticket, or '', and the value
-- before it.
R.tail = function(value)
  if #value <= PERMIT_SIZE then return '', value end
  local size = string.byte(value) == TICKETED and TICKET_SIZE or PERMIT_SIZE
  return string.sub(value, size + 1), string.sub(value, 1, size)
end

-- unwrap removes the key from the state's entry of a permit or ticket, and notes it
-- in s.key_of. An entry of a key with a name begins with a capital letter, and has
-- the name after its numbers.
R.unwrap = function(s, id, value)
  local first = string.byte(value)
  if first >= 97 then return value end
  local size = first == string.byte('Q') and TICKET_SIZE or PERMIT_SIZE
  local name_end = string.find(value, '\0', size + 1, true)
  local name = string.sub(value, size + 1, name_end - 1)
  local at = string.find(name, '\3', 1, true)
  if at then name, s.spent[id] = string.sub(name, 1, at - 1), string.sub(name, at + 1) end
  s.key_of[id] = name
  return string.lower(string.sub(value, 1, 1)) .. string.sub(value, 2, size) .. string.sub(value, name_end + 1)
end

R.wrap = function(s, id, value)
  local name = s.key_of[id] or ''
  if name == '' then return value end
  local size = string.byte(value) == TICKETED and TICKET_SIZE or PERMIT_SIZE
  if size == PERMIT_SIZE and s.spent[id] then name = name .. '\3' .. s.spent[id] end
  return string.upper(string.sub(value, 1, 1)) .. string.sub(value, 2, size) .. name .. '\0' .. string.sub(value, size + 1)
end

R.end_of = function(s, id)
  return s.ends[id] or tonumber(redis.call('ZSCORE', KEYS[2], id) or s.now)
end

-- repair adjusts the state after a zset was deleted or its time to live ended. first is 'h': it
-- removes the permits that are not in holders; some are there, if they were granted or renewed
-- since. first is 'q': it removes all tickets. Then it counts what is left.
R.repair = function(s, first)
  local all, held, used = redis.call('HGETALL', KEYS[1]), {}, 0
  for i = 1, #all, 2 do
    if s.known[all[i]] == nil then s.known[all[i]] = R.unwrap(s, all[i], all[i + 1]) end
  end
  for id, value in pairs(s.known) do
    local ticket, name = value and string.byte(value) == TICKETED, s.key_of[id] or ''
    if not value then
      -- neither permit nor ticket
    elseif ticket and first == 'q' or not ticket and first == 'h' and not redis.call('ZSCORE', KEYS[2], id) then
      R.put(s, id, false)
    elseif not ticket then
      held[id], used = name, used + R.parse_id(id)
    end
  end
  s.used = used
  R.begin(s)
  if first == 'q' then
    s.queued, s.lost, s.joins, s.leaves = 0, nil, {}, {}
    redis.call('DEL', KEYS[3])
    if not s.only then redis.call('DEL', KEYS[8], KEYS[10]) end
    s.moves = {}
  else
    s.repaired = true
  end
  s.extended, s.settled, s.top, s.round, s.reserved = true, false, {}, nil, 0
  if not s.only then
    for _, field in ipairs(redis.call('HKEYS', KEYS[9])) do
      if field ~= '' then R.key(s, string.sub(field, 2)) end
    end
    for _, name in pairs(held) do R.leaf(s, name) end
    if first == 'q' then s.keyed.runnable, s.sets, s.waiting = 0, {}, {} end
    for _, p in pairs(s.pools or {}) do p.used, p.reserved, p.awaited = 0, 0, nil end
    s.keyed.over = 0
  end
  for _, k in pairs(s.keys or {[''] = s.only}) do
    k.held, k.over, k.with, k.classes, k.reserved, k.changed = 0, nil, nil, nil, 0, true
    if first == 'q' then k.n, k.others, k.state, k.seq, k.head, k.heads, k.tail = 0, 0, 0, 0, nil, nil, nil end
  end
  for id, name in pairs(s.keys and held or {}) do R.hold(s, R.leaf(s, name), (R.parse_id(id)), (R.takes(name))) end
  if first == 'q' then return end
  for _, k in pairs(s.keys or {}) do
    if k == k.of and not k.inner then R.reschedule(s, k) end
  end
end

-- prune removes ended entries of a hash. Like Redis's own expiry it looks at a random
-- few, because all could be thousands after an outage. The last number of an entry is its
-- end. A user without the right to HRANDFIELD loses nothing: the hash's time to live
-- removes all.
R.prune = function(s, key)
  local list = redis.pcall('HRANDFIELD', key, 20, 'WITHVALUES')
  for i = 1, #list, 2 do
    if struct.unpack('<d', list[i + 1], #list[i + 1] - 7) <= s.now then redis.call('HDEL', key, list[i]) end
  end
end
