-- The rules for keys with names: their order, and their records. They are functions of R,
-- made together with those of rare.lua. Most have the names of functions of internal/ledger.

-- key returns the record of a key, which it reads or makes.
R.key = function(s, name)
  return s.keys[name] or R.new_key(s, name, redis.call('HGET', KEYS[9], 'k' .. name))
end

-- new_key makes a record from the stored text; false makes an empty one.
R.new_key = function(s, name, raw)
  local k = {name = name, line = name == '' and 3 or 10, held = 0, n = 0, cap = 0, share = 0, ruled = 0, where = 0, base = 0, seq = 0, level = 0, tag = 0}
  if raw then
    k.held, k.n, k.cap, k.share, k.ruled, k.where, k.base, k.seq, k.level, k.tag, k.head_place = struct.unpack(KEY, raw)
    if #raw > KEY_SIZE then k.head = string.sub(raw, KEY_SIZE + 1) end
  end
  s.keys[name] = k
  return k
end

R.key_of = function(s, id) return R.key(s, s.key_of[id] or '') end

-- fetch reads the records of several keys, and their heads, with two commands. It skips
-- those that were read before.
R.fetch = function(s, names)
  local fields, missing, heads = {}, {}, {}
  for _, name in ipairs(names) do
    if not s.keys[name] and not missing[name] then
      missing[name], missing[#missing + 1], fields[#fields + 1] = true, name, 'k' .. name
    end
  end
  for from = 1, missing[2] and #fields or 0, 2000 do
    for i, raw in ipairs(redis.call('HMGET', KEYS[9], unpack(fields, from, math.min(from + 1999, #fields)))) do
      R.new_key(s, missing[from + i - 1], raw)
    end
  end
  for _, name in ipairs(names) do
    heads[#heads + 1] = s.keys[name] and s.keys[name].head
  end
  if heads[2] then R.lookup_all(s, heads) end
end

-- fetch_asked fetches the keys that a run of asks names.
R.fetch_asked = function(s, q, n, at)
  local names, _ = {}, nil
  for i = 1, n do
    at = at + 12
    if q.others then _, at = struct.unpack(NAMED, call, at) end
    names[i], at = struct.unpack(KEY_NAME, call, at)
  end
  R.fetch(s, names)
end

-- member is the member of lines for a ticket of a key with a name.
R.member = function(k, id, place) return k.name .. '\0' .. struct.pack('>I8', place) .. id end

-- some_named is some for a key with a name. s.foreign has the member of each id, for
-- members that turn out to be no tickets.
R.some_named = function(s, k, from, n, backwards)
  s.read_lines = true
  local low, high, list, places = '[' .. k.name .. '\0', '(' .. k.name .. '\1', nil, {}
  if backwards then
    list = redis.call('ZREVRANGEBYLEX', KEYS[10], high, low, 'LIMIT', from, n)
  else
    list = redis.call('ZRANGEBYLEX', KEYS[10], low, high, 'LIMIT', from, n)
  end
  for i, member in ipairs(list) do
    places[i], list[i] = #member >= #k.name + 9 and struct.unpack('>I8', member, #k.name + 2) or 0, string.sub(member, #k.name + 10)
    s.foreign[list[i]] = member
  end
  return list, places
end

-- cap_of returns how much weight a key may hold.
R.cap_of = function(s, k)
  if k.cap > 0 then return k.cap end
  return k.name ~= '' and s.per_key > 0 and s.per_key or math.huge
end

-- lacks reports whether a key must give back weight before it may take this one. A
-- weight above the cap, which it can never take, does not count.
R.lacks = function(s, k, weight)
  local most = R.cap_of(s, k)
  return weight <= most and weight > most - k.held
end

R.shares = function(k) return k.share > 0 and k.share or 100 end

-- turn_member returns a key's member and score in the zset turn; nil if it is
-- not there.
R.turn_member = function(k)
  if k.where == 1 then return struct.pack('>I8I8', k.tag, k.seq) .. k.name, k.level end
  if k.where == 2 then return k.name, ASIDE + k.level end
end

-- move puts a key to its place in turn or aside. A key that begins to wait, or with again, goes
-- behind all others of its level. The new member is added before the old one is removed: an empty
-- zset would be deleted, with its time to live. If a key moves before the one at which grant
-- stopped, grant must run again.
R.move = function(s, k, again)
  local old, old_score = R.turn_member(k)
  if again or not old and k.n > 0 then
    s.keyed.seq = s.keyed.seq + 1
    k.base, k.seq = s.keyed.time, s.keyed.seq
  end
  k.where, k.changed = 0, true
  local head = k.n > 0 and R.head(s, k)
  if head then
    local weight = R.parse_id(head)
    if R.lacks(s, k, weight) then
      k.where, k.level = 2, s.keyed.epoch
    else
      k.where, k.level, k.tag = 1, math.floor(k.held * 100 / R.shares(k)), k.base + math.max(1, math.floor(weight * 1000 / R.shares(k)))
    end
  elseif k.n > 0 then
    s.lost, s.settled = true, false -- its tickets were deleted
  end
  local new, score = R.turn_member(k)
  if k == s.front and head ~= s.front_head then s.settled = false end
  if new == old and score == old_score then return end
  if s.settled then
    local f = s.front
    if k == f or k.where == 1 and (f.where ~= 1 or k.level < f.level or k.level == f.level and (k.tag < f.tag or k.tag == f.tag and k.seq < f.seq)) then s.settled = false end
  end
  s.top, s.new_turn = nil, s.new_turn or not old
  R.begin(s)
  if new then redis.call('ZADD', KEYS[8], string.format(INTEGER, score), new) end
  if old and old ~= new then redis.call('ZREM', KEYS[8], old) end
end

-- served moves a key whose head was granted behind those that were not served.
R.served = function(s, k)
  s.keyed.time = math.max(s.keyed.time, k.tag)
  R.move(s, k, true)
end

-- standing returns the names of keys that wait, those in turn before those aside, and how many
-- of the returned ones are in turn.
R.standing = function(s, from, to, backwards)
  s.read_turn = true
  local list = redis.call(backwards and 'ZREVRANGE' or 'ZRANGE', KEYS[8], from, to, 'WITHSCORES')
  local names, turns = {}, 0
  for i = 1, #list, 2 do
    local aside = tonumber(list[i + 1]) >= ASIDE
    if not aside then turns = turns + 1 end
    names[#names + 1] = aside and list[i] or string.sub(list[i], 17)
  end
  return names, turns
end

-- in_turn returns the names of the first two keys in turn, or fewer if there
-- are fewer.
R.in_turn = function(s)
  if not s.top then
    local names, n = R.standing(s, 0, 1)
    if not names[1] and s.queued > 0 then s.lost = true end -- the zset was deleted
    R.fetch(s, names) -- also the second, which grant needs next
    s.top = {n > 0 and names[1] or nil, n > 1 and names[2] or nil}
  end
  return s.top
end

R.first_in_turn = function(s)
  local name = R.in_turn(s)[1]
  return name and R.key(s, name)
end

-- room reports whether all keys that wait are at their caps: then free weight
-- can go to a new ask.
R.room = function(s) return not R.in_turn(s)[1] end

-- others_in_turn reports whether another key than k is in turn.
R.others_in_turn = function(s, k)
  local top = R.in_turn(s)
  return top[2] or top[1] and top[1] ~= k.name
end

-- sweep repositions the keys aside after the cap of all keys has changed, at
-- most MAX_SWEPT in a step.
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
      if head then R.tell(s, (R.via(s, head))).recheck = 1 end -- that call goes on with sweeping
      return
    end
    s.swept = s.swept + 1
    R.move(s, k)
  end
end

R.set_per_key = function(s, most)
  if s.per_key ~= most then
    s.per_key, s.keyed.epoch, s.limited, s.settled = most, s.keyed.epoch + 1, true, false
  end
end

-- set_key sets or removes a key's own rule. A cap or share of 0 leaves that part of the
-- rule unchanged.
R.set_key = function(s, q)
  if s.only then R.name_keys(s) end
  R.act(s)
  local k, ruled = R.key(s, q.key), q.kind == SET_KEY and 1 or 0
  s.keyed.rules = s.keyed.rules + ruled - k.ruled
  k.ruled = ruled
  k.cap = ruled == 0 and 0 or q.limit > 0 and q.limit or k.cap
  k.share = ruled == 0 and 0 or q.weight > 0 and q.weight or k.share
  s.settled = false
  R.move(s, k)
  if ruled == 1 then s.persist = true else s.extended = true end
  s.limited = true
  R.remember(s, 0)
  R.answer(s, DONE, 0, 0, 0)
end

-- name_keys makes the semaphore one with keys. Earlier permits and tickets belong to
-- the key ''.
R.name_keys = function(s)
  R.write_lines(s)
  s.begun = false
  R.read_keys(s)
  R.begin(s)
  redis.call('DEL', KEYS[8], KEYS[9], KEYS[10])
  s.settled, s.extended = false, true
  R.move(s, s.keys[''])
end

-- read_keys prepares s for keys with names.
R.read_keys = function(s)
  s.keys, s.only, s.keyed = {[''] = s.only}, nil, {time = 0, seq = 0, epoch = 0, swept = 0, rules = 0}
end

-- forget_keys removes all records of keys. The semaphore must have no permits and
-- tickets.
R.forget_keys = function(s)
  R.begin(s)
  redis.call('DEL', KEYS[8], KEYS[9], KEYS[10])
  R.read_keys(s)
  s.per_key = 0
end

-- write_keys writes the changed records.
R.write_keys = function(s)
  local t = s.keyed
  local fields, gone = {'', struct.pack(KEYED, s.per_key, t.time, t.seq, t.epoch, t.swept, t.rules)}, {}
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
