-- The rules for keys with names: their order, and their records. They are functions of R,
-- made together with those of rare.lua. Most have the names of functions of internal/ledger.

-- key returns the record of a path, which it reads or makes.
R.key = function(s, name)
  if s.keys[name] then return s.keys[name] end
  if string.find(name, '[\1\2]') then R.fetch(s, {name}) end
  return s.keys[name] or R.new_key(s, name, redis.call('HGET', KEYS[9], 'k' .. name))
end

-- new_key makes a record from the stored text; false makes an empty one. The record of a key is also that of its class
-- for the tickets that want no pools. Another class has a record of its own, whose field of is the key.
R.new_key = function(s, name, raw)
  local k = {name = name, path = name, line = 10, parent = '', last = name, depth = 1, held = 0, n = 0, cap = 0, share = 0, ruled = 0, state = 0, start = 0, seq = 0, level = 0, finish = 0, time = 0, others = 0, reserved = 0}
  k.of = k
  if string.find(name, '\2', 1, true) then
    local set, path = string.match(name, '^(.*)\2(.*)$')
    local of = R.key(s, path)
    k.set, k.of, k.path, k.parent, k.last, k.depth, k.up = set, of, set .. '\2' .. of.path, set .. '\2' .. of.parent, of.last, of.depth, of.up and R.class(s, of.up, set)
  elseif name == '' then
    k.line, k.depth = 3, 0
  else
    local up, last = string.match(name, '^(.*)\1(.*)$')
    if up then
      k.parent, k.last = up, last
      k.up = R.key(s, up)
      k.depth = k.up.depth + 1
      if last == '' then k.path, k.depth = up, 0 end
    end
  end
  if raw then
    k.held, k.n, k.cap, k.share, k.ruled, k.state, k.start, k.seq, k.level, k.finish, k.time, k.head_place = struct.unpack(KEY, raw)
    if #raw > KEY_SIZE then
      local at = string.find(raw, '\0', KEY_SIZE + 1, true) or #raw + 1
      if at > KEY_SIZE + 1 then k.head = string.sub(raw, KEY_SIZE + 1, at - 1) end
      if at < #raw then R.read_with(k, string.sub(raw, at + 1)) end
    end
    if k.ruled >= 4 then k.ruled, k.over = k.ruled - 4, true end
    if k.ruled >= 2 then k.ruled, k.inner = k.ruled - 2, true end
  end
  s.keys[name] = k
  return k
end

-- branch makes a key that was a leaf one with others below it. What it holds and waits for is that of its own
-- callers from now on.
R.branch = function(s, k)
  local name = k.name .. '\1'
  local own = s.keys[name] or R.new_key(s, name, false) -- classes know the record if there was one before
  own.held, own.others = k.held, k.others
  if k.with then
    own.with = {}
    for pool, weight in pairs(k.with) do own.with[pool] = weight end
  end
  for _, n in ipairs(R.classes(s, k)) do
    local to = R.class(s, own, n.set)
    to.n, to.head, to.head_place, to.heads, to.places, to.tail, to.tail_place = n.n, n.head, n.head_place, n.heads, n.places, n.tail, n.tail_place
    n.head, n.heads, n.tail, n.changed, to.changed = nil, nil, nil, true, true
    if n.state == 1 then s.keyed.runnable = s.keyed.runnable - 1 end
  end
  k.inner, k.changed, own.changed = true, true, true
  if k.n + k.others > 0 then
    s.settled = false
    R.reschedule(s, own)
  end
end

-- leaf returns the record where the callers of a path queue, whatever they take. The keys above have others below
-- them from now on.
R.leaf = function(s, path)
  local at = string.find(path, '\2', 1, true)
  if at then path = string.sub(path, 1, at - 1) end
  local k = R.key(s, path)
  local above = k.up
  while above do
    if not above.inner then R.branch(s, above) end
    above = above.up
  end
  return k.inner and R.key(s, path .. '\1') or k
end

-- asked is leaf for a new ask: if nobody is below the key any more, it is a leaf itself.
R.asked = function(s, path)
  local at = string.find(path, '\2', 1, true)
  if at then path = string.sub(path, 1, at - 1) end
  local k = R.key(s, path)
  if k.n + k.others == 0 and k.held == 0 then k.inner = nil end
  return R.leaf(s, path)
end

R.key_of = function(s, id) return R.leaf(s, s.key_of[id] or '') end

-- fetch reads the records of several keys and of those above them, and their heads, with two commands. It skips
-- those that were read before.
R.fetch = function(s, names)
  local fields, missing, heads = {}, {}, {}
  local wanted = names
  if s.sets[1] then -- the keys of classes, too
    wanted = {}
    for _, name in ipairs(names) do
      wanted[#wanted + 1] = string.match(name, '\2(.*)')
      wanted[#wanted + 1] = name
    end
  end
  for _, name in ipairs(wanted) do
    local at = 0
    repeat
      at = string.find(name, '\1', at + 1, true)
      local part = at and string.sub(name, 1, at - 1) or name
      if not s.keys[part] and not missing[part] then
        missing[part], missing[#missing + 1], fields[#fields + 1] = true, part, 'k' .. part
      end
    until not at
  end
  for from = 1, missing[2] and #fields or 0, 2000 do
    for i, raw in ipairs(redis.call('HMGET', KEYS[9], unpack(fields, from, math.min(from + 1999, #fields)))) do
      if not s.keys[missing[from + i - 1]] then R.new_key(s, missing[from + i - 1], raw) end
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
    if string.find(names[i], '\2', 1, true) then names[i] = R.split(names[i]) end
  end
  R.fetch(s, names)
end

-- member is the member of lines for a ticket of a key with a name.
R.member = function(k, id, place) return k.path .. '\0' .. struct.pack('>I8', place) .. id end

-- some_named is some for a key with a name. s.foreign has the member of each id, for
-- members that turn out to be no tickets.
R.some_named = function(s, k, from, n, backwards)
  s.read_lines = true
  local low, high, list, places = '[' .. k.path .. '\0', '(' .. k.path .. '\1', nil, {}
  if backwards then
    list = redis.call('ZREVRANGEBYLEX', KEYS[10], high, low, 'LIMIT', from, n)
  else
    list = redis.call('ZRANGEBYLEX', KEYS[10], low, high, 'LIMIT', from, n)
  end
  for i, member in ipairs(list) do
    places[i], list[i] = #member >= #k.path + 9 and struct.unpack('>I8', member, #k.path + 2) or 0, string.sub(member, #k.path + 10)
    s.foreign[list[i]] = member
  end
  return list, places
end

-- cap_of returns how much weight a key may hold, and cap_set how much while the limit is enforced.
R.cap_of = function(s, k) return s.observed and math.huge or R.cap_set(s, k) end

R.cap_set = function(s, k)
  if k.cap > 0 then return k.cap end
  local most = k.depth > 0 and s.caps and s.caps[k.depth] or 0
  return most > 0 and most or math.huge
end

-- most_of returns the least of the limit and the caps of a leaf's path, and how many names the key has whose
-- cap that is; 0 means the limit.
R.most_of = function(s, k)
  local most, depth = R.limits(s), 0
  while k do
    local cap = R.cap_of(s, k)
    if cap < most then most, depth = cap, k.depth end
    k = k.up
  end
  return most, depth
end

-- blocks reports whether a key has to get weight back before it may have this one beside some that is reserved. It does not
-- block what is above its cap: that is impossible.
R.blocks = function(s, k, weight, kept)
  local most = R.cap_of(s, k)
  return weight <= most and weight > most - k.held - kept
end

-- blocker returns the lowest key of a leaf's path that blocks a weight; nil: none does. Reserved weight is not free.
R.blocker = function(s, k, weight)
  while k and not R.blocks(s, k, weight, k.reserved) do k = k.up end
  return k
end

-- keys_fit reports whether a weight fits each key of a leaf's path. Reserved weight is not free.
R.keys_fit = function(s, k, weight)
  while k and weight <= R.cap_of(s, k) - k.held - k.reserved do k = k.up end
  return not k
end

-- note_over marks a key that holds more than its cap, see the ledger's noteOver.
R.note_over = function(s, k)
  local over = k.held > R.cap_set(s, k)
  if over ~= (k.over or false) then s.keyed.over = s.keyed.over + (over and 1 or -1) end
  k.over = over
end

-- hold changes the weight held of a leaf and of each key above it, and what is in use of pools. count changes the number
-- of tickets of a class and of those above it.
R.hold = function(s, k, weight, takes)
  if takes ~= '' then R.use_pools(s, k, weight, takes) end
  while k do
    k.held, k.changed = k.held + weight, true
    R.note_over(s, k)
    k = k.up
  end
end

R.count = function(s, k, n)
  if k.set then R.count_set(s, k, n) end
  while k do
    k.n, k.changed = k.n + n, true
    k = k.up
  end
end

R.shares = function(k) return k.share > 0 and k.share or 100 end

-- turn_member returns a key's member in the zset turn; nil if it is not there.
R.turn_member = function(k)
  if k.state == 1 then return k.parent .. '\0' .. struct.pack(TURN, k.level, k.finish, k.seq) .. k.last end
  if k.state == 2 then return '\255' .. struct.pack('>I8', k.level) .. k.name end
end

-- stamp puts a class behind all others of its level. Its member stays until list.
R.stamp = function(s, k)
  k.old = k.old or R.turn_member(k)
  s.keyed.seq = s.keyed.seq + 1
  k.start, k.seq = (k.of.up or s.keyed).time, s.keyed.seq
end

-- list puts a class into the list where it belongs, of those that are runnable or blocked; all: its key blocks all its
-- classes. One that begins to wait goes behind all others of its level. If it is now before the class at which grant
-- stopped, grant must run again.
R.list = function(s, k, all)
  k.changed = true
  if k.n + k.seq + k.state == 0 and not k.old then return end -- it waits for nothing, and is in no list
  if not s.top[k.parent] and s.queued > 0 then -- before the move: then top_after knows the rest
    local beside = k.up and k.up.n or not s.sets[1] and s.queued -- the tickets below its parent
    if k.n == beside then s.top[k.parent] = {k.state == 1 and k.name or nil} else R.runnable(s, k.parent) end
  end
  local old, was = k.old or R.turn_member(k), k.state
  if k.n == 0 then k.seq = 0 elseif k.seq == 0 then R.stamp(s, k) end
  k.state, k.old = 0, nil
  local head, _, below
  if k.n > 0 then head, _, below = R.head(s, k) end
  if head then
    local weight, of, leaf = R.parse_id(head), k.of, below
    while below ~= k and weight <= R.cap_of(s, below.of) - below.of.held do below = below.up end -- a key below it may block the ticket without being known to: its cap has become smaller
    if all or below == k and R.blocks(s, of, weight, 0) or of.reserved > 0 and R.blocks(s, of, weight, of.reserved) and R.blocker(s, leaf.of, weight) == of then
      k.state, k.level = 2, s.keyed.epoch
    else
      k.state, k.level, k.finish = 1, k.set and R.level(k, k.set) or math.floor(k.held * 100 / R.shares(of)), k.start + math.max(1, math.floor(weight * 1000 / R.shares(of)))
    end
  elseif k.n > 0 and not k.of.inner then
    s.lost, s.settled = true, false -- its tickets were deleted
  end
  if not k.of.inner then s.keyed.runnable = s.keyed.runnable + (k.state == 1 and 1 or 0) - (was == 1 and 1 or 0) end
  local new = R.turn_member(k)
  if k == s.front and head ~= s.front_head then s.settled = false end
  if new == old then return end
  if s.settled then
    local f = s.front
    while f and f.parent ~= k.parent do f = f.up end
    if f and (k == f or k.state == 1 and (f.state ~= 1 or R.before(k, f))) then s.settled = false end
  end
  s.top[k.parent], s.new_turn = R.top_after(s, k), s.new_turn or not old
  if new and s.moves[new] == false then s.moves[new] = nil elseif new then s.moves[new] = '0' end
  if old and s.moves[old] then s.moves[old] = nil elseif old then s.moves[old] = false end
end

-- write_turn writes the moves since the last time. The new members are added before the old ones are removed: an
-- empty zset would be deleted, with its time to live.
R.write_turn = function(s)
  if not next(s.moves) then return end
  local adds, gone = {}, {}
  for member, score in pairs(s.moves) do
    if score then adds[#adds + 1], adds[#adds + 2] = score, member else gone[#gone + 1] = member end
  end
  s.moves = {}
  R.begin(s)
  R.bulk('ZADD', KEYS[8], adds)
  R.bulk('ZREM', KEYS[8], gone)
end

-- served puts a class whose head was granted, and those above it, behind those that were not served.
R.served = function(s, k, weight)
  local n = k
  while n do
    local t = n.of.up or s.keyed
    t.time, t.changed = math.max(t.time, n.start + math.max(1, math.floor(weight * 1000 / R.shares(n.of)))), true
    if n.n > 0 then R.stamp(s, n) end
    n = n.up
  end
  R.reschedule(s, k.of)
end

-- before reports whether a runnable class is served before another one of its set beside it.
R.before = function(a, b)
  if a.level ~= b.level then return a.level < b.level end
  return a.finish < b.finish or a.finish == b.finish and a.seq < b.seq
end

-- top_after returns what runnable would after a class has moved, as far as that is known without reading: a
-- hand-off moves each key of its path twice. The second one is '?' if there is one, and which is not known.
R.top_after = function(s, k)
  local top, name, stands = s.top[k.parent], k.name, k.state == 1
  if not top then return nil end
  local a, b = top[1], top[2]
  if not a then return stands and {name} or top end
  if not stands then
    if name == a or name == b or b == '?' then return name == a and not b and {} or nil end
    return top
  end
  if name == a then
    if not b or b == '?' then return not b and top or nil end
    return R.before(k, R.key(s, b)) and top or {b, '?'}
  end
  if R.before(k, R.key(s, a)) then return {name, a} end
  if name == b then return {a, '?'} end
  if b and (b == '?' or not R.before(k, R.key(s, b))) then return top end
  return {a, name}
end

-- runnable returns the paths of the first two runnable classes below a path, or fewer if there
-- are fewer; see top_after for '?'.
R.runnable = function(s, parent)
  local top = s.top[parent]
  if top then return top end
  R.write_turn(s)
  s.read_turn = true
  local list, names = redis.call('ZRANGEBYLEX', KEYS[8], '[' .. parent .. '\0', '(' .. parent .. '\1', 'LIMIT', 0, 2), {}
  local above = (parent == '' or string.byte(parent, -1) == 2) and parent or parent .. '\1'
  for i, member in ipairs(list) do names[i] = above .. string.sub(member, #parent + 26) end
  R.fetch(s, names) -- also the second, which grant needs next
  s.top[parent] = names
  return names
end

-- head returns the ticket of a class that is served first, its place and its leaf; nil: all below it are blocked.
R.head = function(s, k)
  while k and k.of.inner do
    local name = R.runnable(s, k.name)[1]
    k = name and R.key(s, name)
  end
  if not k then return nil end
  local id, place = R.queue_head(s, k)
  return id, place, k
end

-- next_class returns the leaf that is served first, without the sets that want awaited pools.
R.next_class = function(s)
  local name = R.runnable(s, '')[1]
  if s.sets[1] then name = R.next_of_sets(s, name) end
  if not name then
    if s.queued > 0 and not s.round then
      R.write_turn(s)
      local blocked = redis.call('ZRANGEBYLEX', KEYS[8], '[\255', '+', 'LIMIT', 0, 1)
      if not blocked[1] then s.lost = true end -- the zset was deleted; some keys may be there again
    end
    return nil
  end
  local _, _, leaf = R.head(s, R.key(s, name))
  return leaf
end

-- none_runnable reports whether all that wait are blocked by a cap of their own, or of the callers beside them.
R.none_runnable = function(s) return s.keyed.runnable == 0 end

-- others_ahead reports whether keys beside those of a leaf's path are runnable, or other sets.
R.others_ahead = function(s, k)
  if (k.set or s.sets[1]) and R.other_sets_ahead(s, k) then return true end
  while k do
    local top = R.runnable(s, k.parent)
    if top[2] or top[1] and top[1] ~= k.name then return true end
    k = k.up
  end
  return false
end

-- sweep reschedules the blocked classes after the caps of all keys have changed, at most MAX_SWEPT in a step. It returns the
-- first waiter of a class that it leaves to the next step; nil: of none.
R.sweep = function(s)
  if s.keyed.epoch == s.keyed.swept then return end
  while true do
    R.write_turn(s)
    local list = redis.call('ZRANGEBYLEX', KEYS[8], '[\255', '(\255' .. struct.pack('>I8', s.keyed.epoch), 'LIMIT', 0, 1)
    if not list[1] then
      s.keyed.swept = s.keyed.epoch
      return
    end
    local k = R.key(s, string.sub(list[1], 10))
    if s.swept == MAX_SWEPT then return R.head(s, k) end
    s.swept = s.swept + 1
    R.reschedule(s, k.of)
  end
end

-- caps_differ reports whether two lists of caps differ; nil is no caps.
R.caps_differ = function(a, b)
  if not a or not b then return a ~= b end
  return a[1] ~= b[1] or a[2] ~= b[2] or a[3] ~= b[3]
end

R.set_caps = function(s, caps)
  if R.caps_differ(s.caps, caps) then
    s.caps, s.keyed.epoch, s.limited, s.settled = caps, s.keyed.epoch + 1, true, false
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
  R.note_over(s, k)
  s.settled = false
  R.reschedule(s, k)
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
  R.reschedule(s, s.keys[''])
end

-- read_keys prepares s for keys with names.
R.read_keys = function(s)
  if s.only then s.only.held, s.only.of = s.used, s.only end
  s.keys, s.only, s.sets, s.waiting, s.keyed, s.top, s.moves = {[''] = s.only}, nil, {}, {}, {time = 0, seq = 0, epoch = 0, swept = 0, rules = 0, runnable = 0, over = 0}, {}, {}
end

-- forget_keys removes all records of keys. The semaphore must have no permits and
-- tickets.
R.forget_keys = function(s)
  R.begin(s)
  redis.call('DEL', KEYS[8], KEYS[9], KEYS[10])
  R.read_keys(s)
  s.caps, s.pools, s.there = nil, nil, nil
end

-- write_keys writes the changed records.
R.write_keys = function(s)
  local t, caps = s.keyed, s.caps or {0, 0, 0}
  local fields, gone = {'', struct.pack(KEYED, caps[1], caps[2], caps[3], t.time, t.seq, t.epoch, t.swept, t.rules, t.runnable, t.over) .. (s.pools and R.pools_text(s) or '')}, {}
  for _, k in pairs(s.keys) do
    if k.changed and k.n + k.others == 0 and k.held == 0 and k.ruled == 0 then
      gone[#gone + 1] = 'k' .. k.name
    elseif k.changed then
      fields[#fields + 1] = 'k' .. k.name
      fields[#fields + 1] = struct.pack(KEY, k.held, k.n, k.cap, k.share, k.ruled + (k.inner and 2 or 0) + (k.over and 4 or 0), k.state, k.start, k.seq, k.level, k.finish, k.time, k.head and k.head_place or 0) .. (k.head or '') .. (s.pools and not k.set and R.with_text(k) or '')
    end
  end
  R.bulk('HDEL', KEYS[9], gone)
  R.bulk('HSET', KEYS[9], fields)
end
