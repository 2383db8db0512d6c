-- The fast path: asks that find room, renewals and releases, of a semaphore
-- where nobody waits, no lease has ended and no slot is used. What is not plain
-- is left to rules.lua, with nothing changed.
local plain = raw and queued == 0 and first > now and not fence and not KEYS[6]

-- One request alone. Whether its id is new, or held, is told by the writing.
if plain and ids == 1 then
  local kind, how, n, want, weight, lease, ticket, next_run = struct.unpack(RUN, call, start)
  local id, ends = ARGV[3], now + lease
  if next_run + (kind == ASK and 8 or 0) <= #call then
    -- something else is asked for, too
  elseif kind == ASK then
    if used + weight <= limit and how < 4 and keep >= ends + 60000000
      and redis.call('ZADD', KEYS[2], 'NX', string.format(INTEGER, ends), id) == 1 then
      token = math.max(token + 1, now)
      redis.call('HSET', KEYS[1], '', struct.pack(STATE, MARK, limit, used + weight, token, keep, math.min(first, ends), fenced, alarm, 0, flags, ''),
        id, struct.pack(PERMIT, 'h', token, now, -1))
      return struct.pack(ONE, limit, 0, GRANTED, 1, token, -1, lease)
    end
  elseif kind == RELEASE then
    if how < 8 and redis.call('ZREM', KEYS[2], id) == 1 then
      redis.call('HDEL', KEYS[1], id)
      redis.call('HSET', KEYS[1], '', struct.pack(STATE, MARK, limit, used - weight, token, keep, first, fenced, alarm, 0, flags, ''))
      return struct.pack(ONE, limit, 0, DONE, 1, 0, 0, 0)
    end
  elseif kind == RENEW and keep >= ends + 60000000 and first <= ends then
    local value = redis.call('HGET', KEYS[1], id)
    if value and string.byte(value) == HELD then
      local _, its_token, _, slot = struct.unpack(PERMIT, value)
      redis.call('ZREM', KEYS[2], ' ') -- passes with full memory, and so does what follows
      redis.call('ZADD', KEYS[2], string.format(INTEGER, ends), id)
      return struct.pack(ONE, limit, 0, GRANTED, 1, its_token, slot, lease)
    end
  end
end

-- A batch. It is decided first and written at the end.
if plain and ids > 1 and ids <= 2000 then
  local call_end, at = #call, start
  local seen = {} -- an id that comes twice is not plain
  local adds, fields, gone, out = {}, {}, {}, {}
  local n_adds, n_fields, n_gone, k = 0, 0, 0, 0
  local new_used, new_token, new_first = used, token, first
  repeat
    local kind, how, n, want, weight, lease, ticket
    kind, how, n, want, weight, lease, ticket, at = struct.unpack(RUN, call, at)
    local ends = string.format(INTEGER, now + lease)
    if kind == ASK then
      plain, at = new_used + n * weight <= limit and how < 4 and keep >= now + lease + 60000000, at + 8 * n
      local next_token = math.max(new_token + 1, now)
      new_used, new_token, new_first = new_used + n * weight, next_token + n - 1, math.min(new_first, now + lease)
      out[#out + 1] = struct.pack(RECORD, GRANTED, n, next_token, -1, lease)
      for j = 1, plain and n or 0 do
        k = k + 1
        local id = ARGV[k + 2]
        if got[k + 1] or seen[id] then plain = false break end
        seen[id] = true
        adds[n_adds + 1], adds[n_adds + 2], n_adds = ends, id, n_adds + 2
        fields[n_fields + 1], fields[n_fields + 2], n_fields = id, struct.pack(PERMIT, 'h', next_token + j - 1, now, -1), n_fields + 2
      end
    elseif kind == RENEW then
      plain = keep >= now + lease + 60000000
      new_first = math.min(new_first, now + lease)
      local from, of_run, with_slot = 0, 0, 0 -- permits that were granted together have tokens in a row
      for _ = 1, plain and n or 0 do
        k = k + 1
        local id, value = ARGV[k + 2], got[k + 1]
        if not value or string.byte(value) ~= HELD or seen[id] then plain = false break end
        seen[id] = true
        adds[n_adds + 1], adds[n_adds + 2], n_adds = ends, id, n_adds + 2
        local _, its_token, _, slot = struct.unpack(PERMIT, value)
        if its_token == from + of_run and slot == -1 and with_slot == -1 then
          of_run = of_run + 1
        else
          if of_run > 0 then out[#out + 1] = struct.pack(RECORD, GRANTED, of_run, from, with_slot, lease) end
          from, of_run, with_slot = its_token, 1, slot
        end
      end
      out[#out + 1] = struct.pack(RECORD, GRANTED, of_run, from, with_slot, lease)
    elseif kind == RELEASE and how < 8 then
      new_used = new_used - n * weight
      out[#out + 1] = struct.pack(RECORD, DONE, n, 0, 0, 0)
      for _ = 1, n do
        k = k + 1
        local id = ARGV[k + 2]
        if not got[k + 1] or seen[id] then plain = false break end
        seen[id] = true
        n_gone = n_gone + 1
        gone[n_gone] = id
      end
    else
      plain = false
    end
  until not plain or at > call_end

  if plain then
    -- With its memory full the server refuses whatever may need more, but
    -- nothing after a first write: what must pass begins with a removal.
    if n_gone > 0 then
      redis.call('ZREM', KEYS[2], unpack(gone))
    elseif marks >= 2 then
      redis.call('ZREM', KEYS[2], ' ')
    end
    if n_adds > 0 then redis.call('ZADD', KEYS[2], unpack(adds)) end
    if n_gone > 0 then redis.call('HDEL', KEYS[1], unpack(gone)) end
    if new_used ~= used or new_token ~= token or new_first ~= first then
      redis.call('HSET', KEYS[1], '', struct.pack(STATE, MARK, limit, new_used, new_token, keep, new_first, fenced, alarm, 0, flags, ''), unpack(fields))
    end
    return struct.pack(HEAD, limit, 0) .. table.concat(out)
  end
end
