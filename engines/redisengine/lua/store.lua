-- The functions of table R (see rules.lua) that read and write s, the
-- semaphore.

-- parse_id returns the weight at the end of an id, and whether the permit has a
-- slot. Most weights are 1.
parse_id = function(id)
  local before, dash, last = string.byte(id, -3, -1)
  if last == 49 and dash == 45 and before <= 57 then return 1, false end
  local slot, weight = string.match(id, '(s?)%-(%d+)$')
  return tonumber(weight or 0), slot == 's'
end,

client = function(id) return string.match(id, '^[^-]+') end,

-- via returns the session that gets the notifications about a permit or ticket,
-- and the rival session or ''.
via = function(s, id)
  local value = R.lookup(s, id)
  if not value or #value <= PERMIT_SIZE then return R.client(id), '' end
  local via, rival = struct.unpack(TAIL, (R.tail(value)))
  return via, rival
end,

-- lookup returns the state's entry of an id, or false.
lookup = function(s, id)
  local value = s.known[id]
  if value == nil then
    value = redis.call('HGET', KEYS[1], id)
    if value and not s.only then value = R.unwrap(s, id, value) end
    s.known[id] = value
  end
  return value
end,

lookup_all = function(s, list)
  local missing = {}
  for _, id in ipairs(list) do
    if s.known[id] == nil then missing[#missing + 1] = id end
  end
  if s.watcher ~= '' and s.known[s.watcher] == nil then missing[#missing + 1] = s.watcher end -- watch needs it
  if not missing[1] then return end
  for from = 0, #missing - 1, 2000 do
    for k, value in ipairs(redis.call('HMGET', KEYS[1], unpack(missing, from + 1, math.min(from + 2000, #missing)))) do
      local id = missing[from + k]
      s.known[id] = value and not s.only and R.unwrap(s, id, value) or value
    end
  end
end,

-- put sets the state's entry of an id; false removes it. new: there was no entry. New entries are
-- written first.
put = function(s, id, value, new)
  s.known[id] = value
  if not new then
    s.changed[id] = true
    return
  end
  local n = s.n_fields
  s.fields[n + 1], s.fields[n + 2], s.n_fields = id, s.only and value or R.wrap(s, id, value), n + 2
end,

-- holder returns 'h' or 'r' of a permit, its token and its slot; nil if there
-- is no such permit.
holder = function(s, id)
  local value = R.lookup(s, id)
  if not value or string.byte(value) == TICKETED then return nil end
  if s.behind and R.end_of(s, id) <= s.now then
    R.forget(s, id)
    return nil
  end
  local is, token, _, slot = struct.unpack(PERMIT, value)
  return is, token, slot
end,

-- ticket returns a ticket's end, its place, the number of callers behind it in
-- its process, and 1 if it insists, or 2 if it is revoked; nil if there is no such ticket.
ticket = function(s, id)
  local value = R.lookup(s, id)
  if not value or string.byte(value) ~= TICKETED then return nil end
  local _, ticket_end, place, behind, insist = struct.unpack(TICKET, value)
  return ticket_end, place, behind, insist
end,

-- begin comes before the first write to any other key than holders. It fails if
-- a key has a foreign type, before anything is written. If the call must
-- succeed with the server's memory full, begin makes a first write that needs
-- no memory: the server refuses no command of a script after its first write.
begin = function(s)
  if s.begun then return end
  s.begun = true
  if s.pass then redis.call('ZREM', KEYS[2], ' ') else redis.call('ZCARD', KEYS[2]) end
  redis.call('ZCARD', KEYS[3])
  if not s.only then
    if not s.read_turn then redis.call('ZCARD', KEYS[8]) end
    if not s.read_keys then redis.call('HLEN', KEYS[9]) end
    if not s.read_lines then redis.call('ZCARD', KEYS[10]) end
  end
end,

write_holders = function(s)
  if next(s.joins) or next(s.leaves) then R.begin(s) end
  if s.pass and not s.begun and not s.removes then redis.call('ZREM', KEYS[2], ' ') end
  s.begun = true
  R.write_zset(KEYS[2], s.ends)
  s.ends = {}
end,

-- write_lines writes the tickets that have joined or left the lines.
write_lines = function(s)
  if not next(s.joins) and not next(s.leaves) then return end
  R.begin(s)
  for line, joins in pairs(s.joins) do R.bulk('ZADD', KEYS[line], joins) end
  for line, leaves in pairs(s.leaves) do R.write_zset(KEYS[line], leaves) end
  s.joins, s.leaves = {}, {}
end,

write_state = function(s)
  local fields, gone, n = s.fields, {}, s.n_fields
  for id in pairs(s.changed) do
    local value = s.known[id]
    if value then
      fields[n + 1], fields[n + 2], n = id, s.only and value or R.wrap(s, id, value), n + 2
    else
      gone[#gone + 1] = id
    end
  end
  R.bulk('HSET', KEYS[1], fields) -- of a field that comes twice, the last value counts
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

-- bulk runs one command with a list of arguments, or several if the list is too
-- long for unpack.
bulk = function(command, key, list)
  for i = 1, #list, 2000 do redis.call(command, key, unpack(list, i, math.min(i + 1999, #list))) end
end,
