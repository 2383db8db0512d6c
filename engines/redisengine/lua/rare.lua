-- The rules that few steps need, as functions of R like those of rules.lua and store.lua. They are made when one of
-- them is first looked for: making functions costs.

-- claim is the owner of the permit or ticket that is asked for, as its tail has it.
-- A named one goes to the session of the step, but not from a session that can be
-- notified if this session asks again, or if the ask is late: for a caller that came
-- before the ticket's. Then the session is its rival: it may be the one that its
-- caller still listens to.
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

-- give makes a named permit or ticket that of a session. The one that had it is its
-- rival, if it lives.
R.give = function(s, id, session)
  local was, rival = R.via(s, id)
  if was ~= session and R.reach(s, was) then
    rival = was
  elseif rival == session then
    rival = ''
  end
  R.belongs(s, id, session, rival)
end

-- belongs writes whose a named permit or ticket is.
R.belongs = function(s, id, session, rival)
  local tail, before = R.tail(R.look(s, id))
  local _, _, who = struct.unpack(TAIL, tail)
  R.put(s, id, before .. struct.pack(TAIL, session, rival) .. string.sub(tail, who))
end

-- revoke makes the next renewal of a permit fail, and has its holder renew now.
R.revoke = function(s, q, id)
  local is = R.holder(s, id)
  if is then
    R.put(s, id, 'r' .. string.sub(R.look(s, id), 2))
    R.tell(s, (R.via(s, id))).renew = true -- and so hear of it
  end
  R.answer(s, is and DONE or GONE, 0, 0, 0)
end

-- act notes that no copy of the call is to be carried out. It refuses a foreign key,
-- before anything is written.
R.act = function(s)
  if not s.acts then redis.call('HGET', KEYS[5], s.caller) end
  s.acts = true
end

-- report takes in how the holds of the caller have gone. Totals only grow, so the
-- greater of each is the later.
R.report = function(s, good, bad, waited)
  if s.limit == 0 then return R.answer(s, GONE, 0, 0, 0) end
  local was = s.report or redis.call('HGET', KEYS[11], s.caller)
  if was then
    local good_was, bad_was, waited_was, ends = struct.unpack(REPORT, was)
    if ends > s.now then good, bad, waited = math.max(good, good_was), math.max(bad, bad_was), math.max(waited, waited_was) end
  end
  s.report = struct.pack(REPORT, math.max(good, 0), math.max(bad, 0), math.max(waited, 0), s.now + REPORTED)
  R.answer(s, DONE, 0, 0, 0)
end

-- auto_limit stores the limit that a controller found. It does not keep an idle
-- semaphore known.
R.auto_limit = function(s, q, auto)
  if s.limit == 0 then return R.answer(s, GONE, 0, 0, 0) end
  if s.pinned then return R.answer(s, PINNED, 0, 0, 0) end
  redis.call('HGET', KEYS[11], '') -- refuses a foreign key, before anything is written
  R.put_limit(s, q.limit)
  s.auto = auto .. struct.pack('<d', s.now + REPORTED)
  R.answer(s, DONE, 0, 0, 0)
end

-- set_limit stores the limit; 0 leaves it as it is. pin makes it outlive idleness.
R.set_limit = function(s, q)
  if q.limit == 0 and s.limit == 0 then return R.answer(s, GONE, 0, 0, 0) end
  R.act(s)
  if q.limit > 0 then R.put_limit(s, q.limit) end
  if q.weight > 1 and s.only then R.name_keys(s) end
  if q.weight > 0 and not s.only then R.set_per_key(s, q.weight - 1) end
  s.settled = false
  if q.pin and not s.pinned then s.pinned, s.persist = true, true end
  R.remember(s, 0)
  R.answer(s, DONE, 0, 0, 0)
end

-- mark unsets the limit, pauses or unpauses. As long as a semaphore is pinned or
-- paused, it outlives idleness.
R.mark = function(s, q)
  if s.limit == 0 then return R.answer(s, GONE, 0, 0, 0) end
  R.act(s)
  if q.kind == UNSET_LIMIT then
    s.pinned, s.extended = false, true
  elseif q.kind == PAUSE then
    s.paused, s.persist = true, true
  elseif s.paused then
    s.paused, s.extended, s.settled = false, true, false
  end
  R.remember(s, 0)
  R.answer(s, DONE, 0, 0, 0)
end

-- remove forgets a semaphore that nobody uses.
R.remove = function(s)
  if s.limit == 0 then return R.answer(s, GONE, 0, 0, 0) end
  if s.used > 0 or s.queued > 0 then return R.answer(s, IN_USE, 0, 0, 0) end
  s.limit, s.pinned, s.paused, s.keep, s.token = 0, false, false, 0, 0
  if not s.only then R.forget_keys(s) end
  if s.keepers > 0 then
    R.begin(s)
    redis.call('DEL', KEYS[6])
    s.keepers, s.keeps = 0, 0
  end
  R.answer(s, DONE, 0, 0, 0)
end

-- open makes sure the semaphore exists; new says that it begins, or that the newest user's
-- limit is another.
R.open = function(s, q, new, per_key)
  if new then
    R.put_limit(s, q.limit)
    if not s.only then R.set_per_key(s, per_key) end
  end
  R.remember(s, q.lease)
end

R.put_limit = function(s, limit)
  if s.limit ~= limit then s.limit, s.limited, s.settled = limit, true, false end
end

-- remember keeps the limit known, and the keys, while a lease given now may
-- live, and a while; in steps, because setting a time to live costs.
R.remember = function(s, lease)
  if s.keep < s.now + lease + IDLE then
    s.keep, s.extended = s.now + 2 * (lease + IDLE), true
  end
end

-- tail is what only a named permit or ticket has, and what stands before it.
R.tail = function(value)
  if #value <= PERMIT_SIZE then return '', value end
  local size = string.byte(value) == TICKETED and TICKET_SIZE or PERMIT_SIZE
  return string.sub(value, size + 1), string.sub(value, 1, size)
end

-- unwrap takes the key out of what the state has of a permit or ticket. That of one
-- with a name begins with a capital, and has the name behind its numbers.
R.unwrap = function(s, id, value)
  local first = string.byte(value)
  if first >= 97 then return value end
  local size = first == string.byte('Q') and TICKET_SIZE or PERMIT_SIZE
  local name_end = string.find(value, '\0', size + 1, true)
  s.key_of[id] = string.sub(value, size + 1, name_end - 1)
  return string.lower(string.sub(value, 1, 1)) .. string.sub(value, 2, size) .. string.sub(value, name_end + 1)
end

R.wrap = function(s, id, value)
  local name = s.key_of[id] or ''
  if name == '' then return value end
  local size = string.byte(value) == TICKETED and TICKET_SIZE or PERMIT_SIZE
  return string.upper(string.sub(value, 1, 1)) .. string.sub(value, 2, size) .. name .. '\0' .. string.sub(value, size + 1)
end

R.end_of = function(s, id)
  return s.ends[id] or tonumber(redis.call('ZSCORE', KEYS[2], id) or s.now)
end

-- repair forgets what a zset lost, which was deleted or whose time to live ended: the permits that
-- holders has not, or all tickets. It counts anew what is left. Of permits some may be back,
-- that were granted or renewed since.
R.repair = function(s, first)
  local all, held, names = redis.call('HGETALL', KEYS[1]), {}, {}
  for i = 1, #all, 2 do
    if s.known[all[i]] == nil then s.known[all[i]] = R.unwrap(s, all[i], all[i + 1]) end
  end
  for id, value in pairs(s.known) do
    local ticket, name = value and string.byte(value) == TICKETED, s.key_of[id] or ''
    if not value then
      -- it is neither
    elseif ticket and first == 'q' or not ticket and first == 'h' and not redis.call('ZSCORE', KEYS[2], id) then
      if not ticket then s.used = s.used - R.shape(id) end
      R.put(s, id, false)
    elseif not ticket then
      held[name] = (held[name] or 0) + R.shape(id)
    end
  end
  R.begin(s)
  if first == 'q' then
    s.queued, s.lost, s.joins, s.leaves = 0, nil, {}, {}
    redis.call('DEL', KEYS[3])
    if not s.only then redis.call('DEL', KEYS[8], KEYS[10]) end
  else
    s.repaired = true
  end
  s.extended, s.settled, s.top = true, false, nil
  if not s.only then
    for _, field in ipairs(redis.call('HKEYS', KEYS[9])) do
      if field ~= '' then names[string.sub(field, 2)] = true end
    end
    for name in pairs(s.keys) do names[name] = true end
    for name in pairs(held) do names[name] = true end
  end
  for name in pairs(s.only and {[''] = true} or names) do
    local k = s.only or R.key(s, name)
    k.held, k.changed = held[name] or 0, true
    if first == 'q' then k.n, k.where, k.head, k.heads, k.tail = 0, 0, nil, nil, nil else R.reposition(s, k) end
  end
end

-- prune removes some entries of a hash that are over, as Redis itself does: all would
-- be too many when thousands come back after an outage. A user who may not ask for them
-- loses nothing: all go some time after the last. The last number of an entry is its end.
R.prune = function(s, key)
  local list = redis.pcall('HRANDFIELD', key, 20, 'WITHVALUES')
  for i = 1, #list, 2 do
    if struct.unpack('<d', list[i + 1], #list[i + 1] - 7) <= s.now then redis.call('HDEL', key, list[i]) end
  end
end
