-- The fast path: asks that find room, renewals and releases of a semaphore
-- where nobody waits, no lease has ended and no slot is used. It decides first
-- and writes at the end, so whatever is not plain leaves nothing behind and is
-- for rules.lua.
if raw and queued == 0 and first > now and ids > 0 and ids <= 1000 and not fence and not KEYS[6] then
  local call_end, at, plain = #call, start, true
  local seen = ids > 1 and {} -- an id that comes twice is not plain
  local adds, fields, gone, out = {}, {}, {}, {}
  local n_adds, n_fields, n_gone, k = 0, 0, 0, 0
  local new_used, new_token, new_first = used, token, first
  repeat
    local kind, how, n, want, weight, lease, ticket, waited
    kind, how, n, want, weight, lease, ticket, waited, at = struct.unpack(RUN, call, at)
    if kind == ASK then
      plain = new_used + n * weight <= limit and how < 4 and keep >= now + lease + 60000000
      local ends, next_token = string.format('%.0f', now + lease), math.max(new_token + 1, now)
      new_used, new_token, new_first = new_used + n * weight, next_token + n - 1, math.min(new_first, now + lease)
      out[#out + 1] = struct.pack(RECORD, GRANTED, n, next_token, -1, lease)
      for j = 1, plain and n or 0 do
        k = k + 1
        local id = ARGV[k + 2]
        if got[k + 1] or seen and seen[id] then plain = false break end
        if seen then seen[id] = true end
        adds[n_adds + 1], adds[n_adds + 2], n_adds = ends, id, n_adds + 2
        fields[n_fields + 1], fields[n_fields + 2], n_fields = id, struct.pack(PERMIT, 'h', next_token + j - 1, now, -1), n_fields + 2
      end
    elseif kind == RENEW then
      plain = keep >= now + lease + 60000000
      local ends = string.format('%.0f', now + lease)
      new_first = math.min(new_first, now + lease)
      for _ = 1, plain and n or 0 do
        k = k + 1
        local id, value = ARGV[k + 2], got[k + 1]
        if not value or string.byte(value) ~= HELD or seen and seen[id] then plain = false break end
        if seen then seen[id] = true end
        adds[n_adds + 1], adds[n_adds + 2], n_adds = ends, id, n_adds + 2
        local _, its_token, _, slot = struct.unpack(PERMIT, value)
        out[#out + 1] = struct.pack(RECORD, GRANTED, 1, its_token, slot, lease)
      end
    elseif kind == RELEASE and how < 8 then
      new_used = new_used - n * weight
      out[#out + 1] = struct.pack(RECORD, DONE, n, 0, 0, 0)
      for _ = 1, n do
        k = k + 1
        local id, value = ARGV[k + 2], got[k + 1]
        if not value or seen and seen[id] then plain = false break end
        if seen then seen[id] = true end
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
