-- How the rules read and write s, the semaphore; see rules.lua, of whose table
-- R these functions are a part.

-- shape is what the end of an id says: weight, and whether it has a slot.
-- Most have weight 1.
shape = function(id)
  local before, dash, last = string.byte(id, -3, -1)
  if last == 49 and dash == 45 and before <= 57 then return 1, false end
  local slot, weight = string.match(id, '(s?)%-(%d+)$')
  return tonumber(weight or 0), slot == 's'
end,

client = function(id) return string.match(id, '^[^-]+') end,

-- tail is what only a named permit or ticket has, and what stands before it.
tail = function(value)
  if #value <= PERMIT_SIZE then return '', value end
  local size = string.byte(value) == TICKETED and TICKET_SIZE or PERMIT_SIZE
  return string.sub(value, size + 1), string.sub(value, 1, size)
end,

-- via is the session that is told of what happens to a permit or ticket, and its
-- rival, or ''.
via = function(s, id)
  local value = R.look(s, id)
  if not value or #value <= PERMIT_SIZE then return R.client(id), '' end
  local via, rival = struct.unpack(TAIL, (R.tail(value)))
  return via, rival
end,

-- look is what the state has of an id.
look = function(s, id)
  local value = s.known[id]
  if value == nil then
    value = redis.call('HGET', KEYS[1], id)
    if value and s.keyed then value = R.unwrap(s, id, value) end
    s.known[id] = value
  end
  return value
end,

look_all = function(s, list)
  local missing = {}
  for _, id in ipairs(list) do
    if s.known[id] == nil then missing[#missing + 1] = id end
  end
  if s.watcher ~= '' and s.known[s.watcher] == nil then missing[#missing + 1] = s.watcher end -- watch will ask
  if not missing[1] then return end
  for k, value in ipairs(redis.call('HMGET', KEYS[1], unpack(missing))) do
    s.known[missing[k]] = value and s.keyed and R.unwrap(s, missing[k], value) or value
  end
end,

-- unwrap takes the key out of what the state has of a permit or ticket. That of one
-- with a name begins with a capital, and has the name behind its numbers.
unwrap = function(s, id, value)
  local first = string.byte(value)
  if first >= 97 then return value end
  local size = first == string.byte('Q') and TICKET_SIZE or PERMIT_SIZE
  local name_end = string.find(value, '\0', size + 1, true)
  s.key_of[id] = string.sub(value, size + 1, name_end - 1)
  return string.lower(string.sub(value, 1, 1)) .. string.sub(value, 2, size) .. string.sub(value, name_end + 1)
end,

wrap = function(s, id, value)
  local name = s.keyed and s.key_of[id] or ''
  if name == '' then return value end
  local size = string.byte(value) == TICKETED and TICKET_SIZE or PERMIT_SIZE
  return string.upper(string.sub(value, 1, 1)) .. string.sub(value, 2, size) .. name .. '\0' .. string.sub(value, size + 1)
end,

put = function(s, id, value) s.known[id], s.changed[id] = value, true end,

-- put_new is put for an id that the state may not have: such are written first.
put_new = function(s, id, value)
  local n = s.n_fields
  s.known[id], s.fields[n + 1], s.fields[n + 2], s.n_fields = value, id, value, n + 2
end,

-- holder is 'h' or 'r' of a permit, its token and its slot.
holder = function(s, id)
  local value = R.look(s, id)
  if not value or string.byte(value) == TICKETED then return nil end
  if s.behind and R.end_of(s, id) <= s.now then
    R.forget(s, id)
    return nil
  end
  local is, token, _, slot = struct.unpack(PERMIT, value)
  return is, token, slot
end,

-- ticket is the end and the place of a ticket, how many callers are behind it in
-- its process, and whether it insists.
ticket = function(s, id)
  local value = R.look(s, id)
  if not value or string.byte(value) ~= TICKETED then return nil end
  local _, ticket_end, place, behind, insist = struct.unpack(TICKET, value)
  return ticket_end, place, behind, insist
end,

end_of = function(s, id)
  return s.ends[id] or tonumber(redis.call('ZSCORE', KEYS[2], id) or s.now)
end,

-- unqueue takes an id out of the queue.
unqueue = function(s, id)
  local value = R.look(s, id)
  if value and string.byte(value) == TICKETED then R.put(s, id, false) end
  s.places[id], s.queued = false, s.queued - 1
  if id == s.tail then s.tail = nil end
end,

-- mend forgets what a zset lost: it was deleted, or its time to live ended. Of holders
-- some may be back, that were granted or renewed since.
mend = function(s, first)
  local all = redis.call('HGETALL', KEYS[1])
  for i = 1, #all, 2 do
    local id, ticket = all[i], string.byte(all[i + 1]) == TICKETED
    if id ~= '' and ticket == (first == 'q') and s.known[id] ~= false and (ticket or not redis.call('ZSCORE', KEYS[2], id)) then
      if not ticket then s.used = s.used - R.shape(id) end
      R.put(s, id, false)
    end
  end
  s.extended, s.settled = true, first == 'q'
  if first == 'q' then s.queued = 0 else s.mended = true end
end,

-- begin comes before a write that is not to holders. It refuses a foreign
-- key; and it writes for those who must pass although the server's memory is
-- full: after a first write the server refuses nothing.
begin = function(s)
  if s.begun then return end
  s.begun = true
  if s.pass then redis.call('ZREM', KEYS[2], ' ') else redis.call('ZCARD', KEYS[2]) end
  redis.call('ZCARD', KEYS[3])
  if s.keyed then
    if not s.read_turn then redis.call('ZCARD', KEYS[8]) end
    if not s.read_keys then redis.call('HLEN', KEYS[9]) end
    if not s.read_lines then redis.call('ZCARD', KEYS[10]) end
  end
end,

write_holders = function(s)
  if s.pass and not s.begun and not s.removes then redis.call('ZREM', KEYS[2], ' ') end
  s.begun = true
  R.write_zset(KEYS[2], s.ends)
  s.ends = {}
end,

write_waiters = function(s)
  if s.n_joins > 0 then
    R.begin(s)
    R.bulk('ZADD', KEYS[3], s.joins)
    s.joins, s.n_joins = {}, 0
  end
  if next(s.places) then
    R.begin(s)
    R.write_zset(KEYS[3], s.places)
    s.places = {}
  end
end,

write_state = function(s)
  local fields, gone, n = s.fields, {}, s.n_fields
  for id in pairs(s.changed) do
    local value = s.known[id]
    if value then
      fields[n + 1], fields[n + 2], n = id, s.keyed and R.wrap(s, id, value) or value, n + 2
    else
      gone[#gone + 1] = id
    end
  end
  R.bulk('HSET', KEYS[1], fields) -- what comes twice has its last value
  R.bulk('HDEL', KEYS[1], gone)
end,

write_zset = function(key, scores)
  local adds, gone, n = {}, {}, 0
  for id, score in pairs(scores) do
    if score then
      adds[n + 1], adds[n + 2], n = string.format(INTEGER, score), id, n + 2
    else
      gone[#gone + 1] = id
    end
  end
  R.bulk('ZREM', key, gone)
  R.bulk('ZADD', key, adds)
end,

-- prune removes some entries of a hash that are over, as Redis itself does: all would
-- be too many when thousands come back after an outage. A user who may not ask for them
-- loses nothing: all go some time after the last. The last number of an entry is its end.
prune = function(s, key)
  local list = redis.pcall('HRANDFIELD', key, 20, 'WITHVALUES')
  for i = 1, #list, 2 do
    if struct.unpack('<d', list[i + 1], #list[i + 1] - 7) <= s.now then redis.call('HDEL', key, list[i]) end
  end
end,

-- bulk is one command with a list: some, where unpack cannot take it.
bulk = function(command, key, list)
  for i = 1, #list, 2000 do redis.call(command, key, unpack(list, i, math.min(i + 1999, #list))) end
end,
