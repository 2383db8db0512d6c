-- What a semaphore with keys does otherwise: functions in place of those of
-- rules.lua and store.lua, and further ones, of the same names as those of
-- internal/ledger. They are made only for such a semaphore.
--
-- What is written of its keys is written at once, behind R.begin.

local _ = R.rare -- which is none of them: all are there before some become others
local base = {take = R.take, forget = R.forget, open = R.open}

-- key is what is known of a key.
R.key = function(s, name)
  local k = s.keys[name]
  if not k then
    k = R.new_key(s, name)
    local raw = redis.call('HGET', KEYS[9], 'k' .. name)
    if raw then R.unpack_key(k, raw) end
  end
  return k
end

R.new_key = function(s, name)
  local k = {name = name, held = 0, n = 0, cap = 0, share = 0, ruled = 0, where = 0, base = 0, seq = 0, level = 0, tag = 0}
  s.keys[name] = k
  return k
end

R.unpack_key = function(k, raw)
  k.held, k.n, k.cap, k.share, k.ruled, k.where, k.base, k.seq, k.level, k.tag, k.head_place = struct.unpack(KEY, raw)
  if #raw > KEY_SIZE then k.head = string.sub(raw, KEY_SIZE + 1) end
end

R.key_of = function(s, id) return R.key(s, s.key_of[id] or '') end

R.cap_of = function(s, k)
  if k.cap > 0 then return k.cap end
  return k.name ~= '' and s.keyed.per_key > 0 and s.keyed.per_key or math.huge
end

R.shares = function(k) return k.share > 0 and k.share or 100 end

R.cost = function(k, weight) return math.max(1, math.floor(weight * 1000 / R.shares(k))) end

-- lacks reports whether a key must give back something before it may have a weight.
R.lacks = function(s, k, weight)
  local most = R.cap_of(s, k)
  return weight <= most and weight > most - k.held
end

-- member is a ticket in the lines; prefix is what those of a key begin with.
R.prefix = function(k) return k.name .. '\0' end
R.member = function(k, id, place) return k.name .. '\0' .. struct.pack('>I8', place) .. id end

-- head is the first ticket of a key, and its place.
R.head = function(s, k)
  if k.head or k.n == 0 then return k.head, k.head_place end
  local list
  k.changed = true
  if k.name == '' then
    list = redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES')
    k.head, k.head_place = list[1], tonumber(list[2])
  else
    s.read_lines = true
    list = redis.call('ZRANGEBYLEX', KEYS[10], '[' .. R.prefix(k), '(' .. k.name .. '\1', 'LIMIT', 0, 1)
    if list[1] then k.head_place, k.head = struct.unpack('>I8', list[1], #k.name + 2), string.sub(list[1], #k.name + 10) end
  end
  return k.head, k.head_place
end

-- some are tickets of a key from one of them on, in order; or backwards, from the
-- last one.
R.some = function(k, from, n, backwards)
  if k.name == '' then return redis.call(backwards and 'ZREVRANGE' or 'ZRANGE', KEYS[3], from, from + n - 1) end
  local list
  if backwards then
    list = redis.call('ZREVRANGEBYLEX', KEYS[10], '(' .. k.name .. '\1', '[' .. R.prefix(k), 'LIMIT', from, n)
  else
    list = redis.call('ZRANGEBYLEX', KEYS[10], '[' .. R.prefix(k), '(' .. k.name .. '\1', 'LIMIT', from, n)
  end
  for i, member in ipairs(list) do list[i] = string.sub(member, #k.name + 10) end
  return list
end

-- standing are the names of the keys that wait: those in turn, and those aside.
R.standing = function(s, from, to, backwards)
  s.read_turn = true
  local list = redis.call(backwards and 'ZREVRANGE' or 'ZRANGE', KEYS[8], from, to, 'WITHSCORES')
  local names = {}
  for i = 1, #list, 2 do
    names[#names + 1] = tonumber(list[i + 1]) >= ASIDE and list[i] or string.sub(list[i], 17)
  end
  return names, tonumber(list[2] or math.huge)
end

-- room reports whether each key that waits is at its cap.
R.room = function(s)
  if not s.top then s.top = select(2, R.standing(s, 0, 0)) end
  return s.top >= ASIDE
end

-- spot is as what a key stands where it does, and its score there.
R.spot = function(k)
  if k.where == 1 then return struct.pack('>I8I8', k.tag, k.seq) .. k.name, k.level end
  if k.where == 2 then return k.name, ASIDE + k.level end
end

R.stand = function(s, k)
  local old, score = R.spot(k)
  if not old and k.n > 0 then R.comes(s, k) end
  R.move(s, k, old, score)
end

R.served = function(s, k)
  local old, score = R.spot(k)
  s.keyed.time = math.max(s.keyed.time, k.tag)
  R.comes(s, k)
  R.move(s, k, old, score)
end

R.comes = function(s, k)
  s.keyed.seq = s.keyed.seq + 1
  k.base, k.seq = s.keyed.time, s.keyed.seq
end

-- move puts a key where it belongs. It is added before it is removed elsewhere, so that
-- the zset does not end in between, and its time to live with it.
R.move = function(s, k, old, old_score)
  k.where, k.changed, s.top = 0, true, nil
  local head = k.n > 0 and R.head(s, k)
  if head then
    local weight = R.shape(head)
    if R.lacks(s, k, weight) then
      k.where, k.level = 2, s.keyed.epoch
    else
      k.where, k.level, k.tag = 1, math.floor(k.held * 100 / R.shares(k)), k.base + R.cost(k, weight)
    end
  elseif k.n > 0 then
    s.lost = true -- its line was deleted
  end
  local new, score = R.spot(k)
  if new == old and score == old_score then return end
  R.begin(s)
  if new then
    redis.call('ZADD', KEYS[8], string.format(INTEGER, score), new)
    s.new_turn = s.new_turn or not old
  end
  if old and old ~= new then redis.call('ZREM', KEYS[8], old) end
end

-- sweep has keys that stand aside look at the cap of all keys again, which has
-- changed, but for MAX_SWEPT of them in a step.
R.sweep = function(s)
  if s.keyed.epoch == s.keyed.swept then return end
  while true do
    local list = redis.call('ZRANGEBYSCORE', KEYS[8], string.format(INTEGER, ASIDE), '(' .. string.format(INTEGER, ASIDE + s.keyed.epoch), 'LIMIT', 0, 1)
    if not list[1] then
      s.keyed.swept = s.keyed.epoch
      return
    end
    local k = R.key(s, list[1])
    if s.swept == MAX_SWEPT then
      local head = R.head(s, k)
      if head then R.tell(s, (R.via(s, head))).ask = true end -- and go on with that
      return
    end
    s.swept = s.swept + 1
    R.stand(s, k)
  end
end

R.set_per_key = function(s, most)
  if s.keyed.per_key ~= most then
    s.keyed.per_key, s.keyed.epoch, s.limited = most, s.keyed.epoch + 1, true
  end
end

R.open = function(s, q)
  if s.limit == 0 or q.pin and not s.pinned then R.set_per_key(s, q.per_key) end
  base.open(s, q)
end

R.take = function(s, id, weight, slotted, lease_end, of)
  local k = R.key_of(s, id)
  k.held, k.changed = k.held + weight, true
  return base.take(s, id, weight, slotted, lease_end, of)
end

R.forget = function(s, id)
  local k = R.key_of(s, id)
  base.forget(s, id)
  k.held = k.held - R.shape(id)
  R.stand(s, k)
end

R.put_new = R.put

R.enqueue = function(s, id, place)
  local k = R.key_of(s, id)
  R.begin(s)
  if k.name == '' then
    redis.call('ZADD', KEYS[3], string.format(INTEGER, place), id)
    s.new_waiters = true
  else
    redis.call('ZADD', KEYS[10], 0, R.member(k, id, place))
    s.new_lines = s.new_lines or k.n == 0
  end
  s.queued, k.n, k.changed = s.queued + 1, k.n + 1, true
  if k.n == 1 or k.head and (place < k.head_place or place == k.head_place and id < k.head) then k.head, k.head_place = id, place end
end

-- unqueue takes a ticket out of its line. Its key is to stand then.
R.unqueue = function(s, id, place)
  local k = R.key_of(s, id)
  local _, is = R.ticket(s, id)
  if is then
    R.put(s, id, false)
    s.queued, k.n, k.changed = s.queued - 1, k.n - 1, true
  end
  R.begin(s)
  if k.name == '' then redis.call('ZREM', KEYS[3], id) else redis.call('ZREM', KEYS[10], R.member(k, id, is or place)) end
  if k.head == id then k.head, k.changed = nil, true end
end

R.drop = function(s, id)
  if not R.ticket(s, id) then return false end
  R.unqueue(s, id)
  R.stand(s, R.key_of(s, id))
  return true
end

-- position is where a ticket is in the line of its key.
R.position = function(s, id)
  local k = R.key_of(s, id)
  if k.name == '' then return redis.call('ZRANK', KEYS[3], id) or 0 end
  local _, place = R.ticket(s, id)
  return redis.call('ZLEXCOUNT', KEYS[10], '[' .. R.prefix(k), '(' .. R.member(k, id, place))
end

-- fetch reads what is known of some keys and of their heads, as far as that is not known
-- yet, in two calls.
R.fetch = function(s, names)
  local fields, missing, heads = {}, {}, {}
  for _, name in ipairs(names) do
    if not s.keys[name] then fields[#fields + 1], missing[#missing + 1] = 'k' .. name, name end
  end
  if missing[2] then
    for i, raw in ipairs(redis.call('HMGET', KEYS[9], unpack(fields))) do
      if raw then R.unpack_key(R.new_key(s, missing[i]), raw) end
    end
  end
  for _, name in ipairs(names) do
    local head = s.keys[name] and s.keys[name].head
    if head then heads[#heads + 1] = head end
  end
  if heads[2] then R.look_all(s, heads) end
end

-- grant hands free weight to the heads of the keys in turn, as far as it goes, and up
-- to a place.
R.grant = function(s, up_to)
  if s.queued == 0 then return end
  R.sweep(s)
  while not s.paused do
    local names, score = R.standing(s, 0, 1) -- and the next, which is looked at then
    s.top = score
    if s.lost or not names[1] and s.queued > 0 then return R.mend(s, 'q') end
    if score >= ASIDE then return end
    R.fetch(s, names)
    local k = R.key(s, names[1])
    local id, place = R.head(s, k)
    if not id then return R.mend(s, 'q') end
    if place > up_to then return end
    local weight, slot = R.shape(id)
    if s.turns > 0 and R.lacks(s, k, weight) then -- its cap is smaller than it was
      s.turns = s.turns - 1
      R.stand(s, k)
    else
      local ticket, _, _, insist = R.ticket(s, id)
      local who, value = (R.via(s, id)), s.known[id]
      local over, heavy, granted = not ticket or ticket <= s.now, weight > math.min(s.limit, R.cap_of(s, k)), false
      if not over and not heavy and weight > s.limit - s.used then return end
      if s.turns == 0 then
        R.tell(s, who).ask = true -- and go on with that
        return
      end
      s.turns = s.turns - 1
      R.unqueue(s, id, place)
      if over then
        -- fell silent
      elseif heavy then
        R.tell(s, who).ask = true -- could never be served; asking again tells its client
      elseif insist == 1 or R.reach(s, who) then
        R.hand_over(s, id, weight, slot, ticket, who, value)
        granted = true
      end
      if granted then R.served(s, k) else R.stand(s, k) end
    end
  end
end

-- goes_first reports whether an ask goes before everybody that waits.
R.goes_first = function(s, k, q, id, place)
  local list = redis.call('ZRANGEBYSCORE', KEYS[8], '-inf', '(' .. string.format(INTEGER, ASIDE), 'LIMIT', 0, 2)
  if #list > 1 or list[1] and string.sub(list[1], 17) ~= k.name then return false end
  local head, head_place = R.head(s, k)
  return k.n == 0 or head == id or q.wait and place < head_place
end

R.ask = function(s, q, id)
  if s.limit == 0 and q.weight > q.limit then return R.answer(s, TOO_HEAVY, q.limit, 0, 0) end
  R.open(s, q)
  local known = R.look(s, id)
  local of, late = '', nil
  if q.who or known and #known > PERMIT_SIZE then of, late = R.claim(s, q, id, known) end
  local is, token, slot = R.holder(s, id)
  if is and not s.handed[id] then
    if is ~= 'h' then return R.answer(s, REVOKED, 0, 0, 0) end
    return R.answer(s, GRANTED, token, slot, R.end_of(s, id) - s.now)
  end
  if q.strict and (q.limit ~= s.limit or q.per_key ~= s.keyed.per_key) then
    R.drop(s, id)
    return R.answer(s, LIMIT_DIFFERS, 0, 0, 0)
  end
  local k = R.key(s, R.ticket(s, id) and (s.key_of[id] or '') or q.key)
  local most = math.min(s.limit, R.cap_of(s, k))
  if q.weight > most then
    R.drop(s, id)
    return R.answer(s, TOO_HEAVY, most, 0, 0)
  end
  local place = s.now - q.waited
  R.grant(s, q.wait and place or math.huge)
  is, token, slot = R.holder(s, id)
  if is then -- its turn came in this step
    R.untell(s, id)
    R.extend(s, id, s.now + q.lease)
    if q.who and not late then R.give(s, id, s.caller) end
    return R.answer(s, GRANTED, token, slot, q.lease)
  end
  local old_end, old_place, _, old_insist = R.ticket(s, id)
  if not old_end then
    k = R.key(s, q.key)
    s.key_of[id] = q.key
  end
  if not s.paused and q.weight <= s.limit - s.used and q.weight <= R.cap_of(s, k) - k.held and (q.unfair or R.goes_first(s, k, q, id, place)) then
    if old_end then R.unqueue(s, id) end
    token, slot = R.take(s, id, q.weight, q.slot, s.now + q.lease, of)
    if q.who and not late then R.give(s, id, s.caller) end
    R.stand(s, k)
    return R.answer(s, GRANTED, token, slot, q.lease)
  end
  if not q.wait then
    R.drop(s, id)
    s.refused = true
    return R.answer(s, REFUSED, 0, 0, 0)
  end
  local insist = q.again and 1 or 0
  if old_end then insist = (old_insist == 1 or q.again and not R.hears(s, s.caller)) and 1 or 0 end
  if old_end and old_place <= place and not q.anew then
    R.put(s, id, struct.pack(TICKET, 'q', s.now + q.ticket, old_place, q.behind, insist) .. of)
  else
    if old_end then R.unqueue(s, id) end
    R.put(s, id, struct.pack(TICKET, 'q', s.now + q.ticket, place, q.behind, insist) .. of)
    R.enqueue(s, id, place)
  end
  R.stand(s, k)
  s.asker, s.again = id, s.again or q.again
  return R.answer(s, QUEUED, s.now + q.ticket, R.position(s, id), 0)
end

-- watch: see rules.lua. The ticket is the last one of the last key.
R.watch = function(s)
  if s.queued > 0 and s.used > 0 then
    local first = R.next_look(s)
    if not first then return end
    local n = 1 -- looked at at once
    for _, name in ipairs((R.standing(s, 0, MAX_TURNS, true))) do
      local k, passed = R.key(s, name), 0
      while k.n > passed and s.turns > 0 do
        local list = R.some(k, passed, n, true)
        if not list[1] then return R.mend(s, 'q') end
        for _, id in ipairs(list) do
          if s.turns == 0 then break end
          local ticket, _, _, insist = R.ticket(s, id)
          if (ticket or 0) > s.now and R.reach(s, (R.via(s, id))) then
            s.watcher, R.tell(s, (R.via(s, id))).recheck = id, math.max(1, first - s.now)
            return
          elseif (ticket or 0) > s.now and insist == 1 then
            passed = passed + 1
          elseif not R.drop(s, id) then
            return R.mend(s, 'q')
          end
          s.turns = s.turns - 1
        end
        n = 50
      end
    end
  end
  s.alarm, s.watcher = 0, ''
end

-- others_wait looks at MAX_LOOKED tickets: a client with keys may have thousands.
R.others_wait = function(s)
  local looked = 0
  for _, name in ipairs((R.standing(s, 0, MAX_LOOKED))) do
    for _, id in ipairs(R.some(R.key(s, name), 0, MAX_LOOKED + 1 - looked)) do
      looked = looked + 1
      if looked > MAX_LOOKED or R.client(id) ~= s.caller then return true end
    end
  end
  return false
end

-- mend forgets the permits that holders has lost, or all tickets, and counts anew.
R.mend = function(s, first)
  local all, held = redis.call('HGETALL', KEYS[1]), {}
  for i = 1, #all, 2 do
    local id = all[i]
    if s.known[id] ~= false then
      local value = s.known[id] or R.unwrap(s, id, all[i + 1])
      local ticket, name = string.byte(value) == TICKETED, s.key_of[id] or ''
      if ticket and first == 'q' or not ticket and first == 'h' and not redis.call('ZSCORE', KEYS[2], id) then
        if not ticket then s.used = s.used - R.shape(id) end
        R.put(s, id, false)
      elseif not ticket then
        held[name] = (held[name] or 0) + R.shape(id)
      end
    end
  end
  R.begin(s)
  if first == 'q' then
    s.queued, s.lost = 0, nil
    redis.call('DEL', KEYS[3], KEYS[8], KEYS[10])
  else
    s.mended = true
  end
  s.extended, s.top = true, nil
  local known = redis.call('HKEYS', KEYS[9])
  for name in pairs(held) do known[#known + 1] = 'k' .. name end
  for _, field in ipairs(known) do
    if field ~= '' then
      local k = R.key(s, string.sub(field, 2))
      k.held, k.changed = held[k.name] or 0, true
      if first == 'q' then k.n, k.where, k.head = 0, 0, nil else R.stand(s, k) end
    end
  end
end

-- forget_keys forgets what a semaphore without holders and waiters knows of keys.
R.forget_keys = function(s)
  R.begin(s)
  redis.call('DEL', KEYS[8], KEYS[9], KEYS[10])
  local t = s.keyed
  s.keys, t.per_key, t.time, t.seq, t.epoch, t.swept, t.rules = {}, 0, 0, 0, 0, 0, 0
end

-- set_key gives a key a rule of its own, or takes it back.
R.set_key = function(s, q)
  R.act(s)
  local k, ruled = R.key(s, q.key), q.kind == SET_KEY and 1 or 0
  s.keyed.rules = s.keyed.rules + ruled - k.ruled
  k.ruled, k.cap, k.share = ruled, ruled * q.limit, ruled * q.weight
  R.stand(s, k)
  if ruled == 1 then s.persist = true else s.extended = true end
  s.limited = true
  R.remember(s, 0)
  R.answer(s, DONE, 0, 0, 0)
end

-- write_keys writes what has changed.
R.write_keys = function(s)
  local fields, gone = {'', struct.pack(KEYED, s.keyed.per_key, s.keyed.time, s.keyed.seq, s.keyed.epoch, s.keyed.swept, s.keyed.rules)}, {}
  for _, k in pairs(s.keys) do
    if k.changed and k.n == 0 and k.held == 0 and k.ruled == 0 then
      gone[#gone + 1] = 'k' .. k.name
    elseif k.changed then
      fields[#fields + 1] = 'k' .. k.name
      fields[#fields + 1] = struct.pack(KEY, k.held, k.n, k.cap, k.share, k.ruled, k.where, k.base, k.seq, k.level, k.tag, k.head and k.head_place or 0) .. (k.head or '')
    end
  end
  R.bulk('HDEL', KEYS[9], gone)
  R.bulk('HSET', KEYS[9], fields)
end
