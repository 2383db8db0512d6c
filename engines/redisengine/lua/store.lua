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
    if value and not s.only then value = R.unwrap(s, id, value) end
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
    s.known[missing[k]] = value and not s.only and R.unwrap(s, missing[k], value) or value
  end
end,

-- put is what the state is to have of an id. new says that it had nothing: such are written first.
put = function(s, id, value, new)
  s.known[id] = value
  if not new then
    s.changed[id] = true
    return
  end
  local n = s.n_fields
  s.fields[n + 1], s.fields[n + 2], s.n_fields = id, s.only and value or R.wrap(s, id, value), n + 2
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

-- begin comes before a write that is not to holders. It refuses a foreign
-- key; and it writes for those who must pass although the server's memory is
-- full: after a first write the server refuses nothing.
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

-- write_lines writes who has joined the lines of tickets, and who has left them.
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

-- bulk is one command with a list: some, where unpack cannot take it.
bulk = function(command, key, list)
  for i = 1, #list, 2000 do redis.call(command, key, unpack(list, i, math.min(i + 1999, #list))) end
end,
