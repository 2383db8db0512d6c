-- The fast path. It carries out asks that can be granted, renewals and releases, if
-- nobody waits, no lease has ended and no slot is used. On a semaphore with keys it
-- takes calls of one request only. It leaves any other call to rules.lua, with nothing
-- changed.
local keyed = flags >= 8
local plain = raw and queued == 0 and first > now and flags % 8 < 4 and flags < 16 and not fence and (not KEYS[7] or KEYS[7] == KEYS[1]) and (not keyed or ids == 1 and KEYS[9])

-- An ask is plain if its only flags are wait and unfair; or also newest, if the limit
-- is pinned or equal to the ask's. The condition is written twice below, because making
-- a function costs.
local pinned = flags % 2 == 1

-- Nobody waits, so the caller may keep released permits, if it wants to and a
-- recall would reach it. may is its right; write_keeper stores the right.
local may, write_keeper, new_keepers, new_keeps = 0, nil, keepers, keeps
if plain and (keep_for > 0 or keeps > now) then
  local kept = now + keep_for
  if keep_for > 0 then
    local inbox = string.sub(KEYS[1], 1, -6) .. 'inbox:'
    local count = redis.call('PUBSUB', string.byte(caller) == 115 and 'SHARDNUMSUB' or 'NUMSUB', inbox .. caller)
    if tonumber(count[2]) > 0 then
      may, new_keeps = 1, math.max(keeps, kept)
      if keepers < kept then new_keepers = kept + keep_for + IDLE end
    end
  end
  plain = used <= limit -- otherwise all keepers must be recalled
  write_keeper = function()
    if may == 0 then
      redis.pcall('HDEL', KEYS[6], caller)
    else
      local new = redis.pcall('HSET', KEYS[6], caller, struct.pack(KEPT, 0, kept))
      if new == 1 or new_keepers ~= keepers then
        redis.call('PEXPIRE', KEYS[6], math.ceil((new_keepers - now) / 1000))
      elseif new ~= 0 then
        may = 0 -- the key is foreign
      end
    end
  end
end

-- A call of one request. Its write command tells whether the id is new or held,
-- so that no read is needed.
if plain and ids == 1 then
  local kind, run_flags, n, want, weight, lease, ticket, next_run = struct.unpack(RUN, call, start)
  local id, ends = ARGV[3], now + lease
  local score -- the end of the lease; see INTEGER in words.lua: its check would cost more than the conversion
  if kind ~= RELEASE then
    score = string.format('%d', ends)
    if #score ~= 16 then score = string.format('%.0f', ends) end
  end
  local told = 0 -- the last token that the client knows of
  local status, a, b, c, permit = nil, 0, 0, 0, nil
  local changed = new_keeps ~= keeps or new_keepers ~= keepers
  local key, value, c1, c2, c3, there = '', nil, 0, 0, 0, '' -- the permit's key, its entry, the caps of keys, and the pools
  local records, unused -- the changed records of the key's path, and those that go
  if (kind == RELEASE or kind == RENEW) and run_flags % 32 >= 16 then told, next_run = struct.unpack(TOKEN, call, next_run) end
  if keyed then
    local w1, w2, w3, pools
    if kind == ASK_KEYED or kind == ASK_POOLED then
      w1, w2, w3, next_run = struct.unpack(CAPS, call, next_run)
      if kind == ASK_POOLED then pools, next_run = struct.unpack(NAMED, call, next_run) end
      kind = ASK_KEYED
      key, next_run = struct.unpack(KEY_NAME, call, next_run + 12)
    else
      value = redis.call('HGET', KEYS[1], id)
      if value and string.byte(value) == 72 then -- 'H': held, of a key with a name
        key = string.sub(value, PERMIT_SIZE + 1, string.find(value, '\0', PERMIT_SIZE + 1, true) - 1)
      elseif kind == RELEASE and (not value or string.byte(value) ~= HELD) then
        kind = 0 -- revoked, or named: its key stands elsewhere
      end
    end
    if kind ~= RENEW and string.find(key, '\2', 1, true) then kind = 0 end -- it takes some of pools
    local leaf, above, n, at = 'k' .. key, nil, 2, string.find(key, '\1', 1, true)
    while at do -- those above come first
      above = above or {''}
      above[n], above[n + 1], n = 'k' .. string.sub(key, 1, at - 1), leaf, n + 1
      at = string.find(key, '\1', at + 1, true)
    end
    local known = above and redis.call('HMGET', KEYS[9], unpack(above)) or redis.call('HMGET', KEYS[9], '', leaf)
    if known[1] then
      c1, c2, c3 = struct.unpack('<ddd', known[1])
      if #known[1] > KEYED_SIZE then there = string.match(known[1], '^[^%z]*', KEYED_SIZE + 1) end
    end
    local good = known[1] and (kind ~= ASK_KEYED or run_flags < 16 or pinned or w1 == c1 and w2 == c2 and w3 == c3 and (pools or '') == there)
    for i = 2, (kind == ASK_KEYED or kind == RELEASE) and good and n or 1 do
      local name, raw, held, tickets, cap, _, bits, record = i < n and above[i] or leaf, known[i], 0, 0, 0, 0, i < n and 2 or 0, nil
      if raw then held, tickets, cap, _, bits = struct.unpack('<ddddB', raw) end
      good = good and (bits >= 2) == (i < n) -- else the callers of the key queue elsewhere, or will
      if kind == ASK_KEYED then
        if cap == 0 and key ~= '' then cap = i == 2 and c1 or i == 3 and c2 or c3 end
        good = good and (cap == 0 or weight <= cap - held)
        record = struct.pack('<d', held + weight) .. (raw and string.sub(raw, 9) or bits == 0 and string.rep('\0', KEY_SIZE - 8) or struct.pack('<dddB', 0, 0, 0, bits) .. string.rep('\0', KEY_SIZE - 33))
      elseif held > weight or tickets > 0 or bits % 2 == 1 then
        record = struct.pack('<d', held - weight) .. string.sub(raw, 9)
      elseif unused then
        unused[#unused + 1] = name
      else
        unused = {name}
      end
      good = good and (raw or kind == ASK_KEYED)
      if record and records then
        records[#records + 1], records[#records + 2] = name, record
      elseif record then
        records = {name, record}
      end
    end
    if kind == ASK_KEYED then kind = good and ASK or 0 elseif not good and kind ~= RENEW then kind = 0 end
  end
  if next_run + (kind == ASK and not keyed and 12 or 0) <= #call then
    -- the call has another request
  elseif kind == ASK then
    if used + weight <= limit and run_flags % 16 < 4 and (run_flags < 16 or run_flags < 32 and (pinned or want == limit)) and keep >= ends + IDLE
      and redis.call('ZADD', KEYS[2], 'NX', score, id) == 1 then
      used, token, first = used + weight, math.max(token + 1, now), math.min(first, ends)
      permit = key == '' and struct.pack(PERMIT, 'h', token, now, -1) or struct.pack(PERMIT, 'H', token, now, -1) .. key .. '\0'
      status, a, b, c = GRANTED, token, -1, lease
    end
  elseif kind == RELEASE then
    if run_flags % 16 < 8 and run_flags < 32 and redis.call('ZREM', KEYS[2], id) == 1 then
      redis.call('HDEL', KEYS[1], id)
      used, changed, status = used - weight, true, DONE
    end
  elseif kind == RENEW and run_flags < 32 and keep >= ends + IDLE and first <= ends then
    if not keyed then value = redis.call('HGET', KEYS[1], id) end
    if value and (string.byte(value) == HELD or string.byte(value) == 72) then
      _, a, _, b = struct.unpack(PERMIT, value)
      status, c = GRANTED, lease
      redis.call('ZREM', KEYS[2], ' ') -- works with full memory, and so do all commands after it
      redis.call('ZADD', KEYS[2], score, id)
    end
  end
  if status then
    if told > token then token, changed = told, true end
    if permit or changed then
      local state = struct.pack(STATE, MARK, limit, used, token, keep, first, fenced, alarm, 0, new_keepers, new_keeps, flags, '')
      if keyed then state = KEYED_MARK .. string.sub(state, 5) end
      if permit then redis.call('HSET', KEYS[1], '', state, id, permit) else redis.call('HSET', KEYS[1], '', state) end
    end
    if unused then redis.call('HDEL', KEYS[9], unpack(unused)) end
    if records then redis.call('HSET', KEYS[9], unpack(records)) end
    if write_keeper then write_keeper() end
    if c1 + c2 + c3 > 0 or there ~= '' then
      local marked, more = may + 16, ''
      if c1 + c2 + c3 > 0 then marked, more = marked + 32, struct.pack('<ddd', c1, c2, c3) end
      if there ~= '' then marked, more = marked + 64, more .. struct.pack('<I4', #there) .. there end
      return struct.pack(HEAD, limit, 0, marked) .. more .. struct.pack(RECORD, status, 1, a, b, c)
    end
    return struct.pack(ONE, limit, 0, may + 16, status, 1, a, b, c)
  end
end

-- A call of several requests. All are decided first, and written at the end.
if plain and ids > 1 and ids <= 2000 then
  local call_end, at = #call, start
  local integer = #string.format('%d', now) == 16 and '%d' or '%.0f'
  local seen = {} -- a call with the same id twice is not plain
  local adds, fields, gone, out = {}, {}, {}, {}
  local n_adds, n_fields, n_gone, k = 0, 0, 0, 0
  local new_used, new_token, new_first = used, token, first
  repeat
    local kind, run_flags, n, want, weight, lease, ticket
    kind, run_flags, n, want, weight, lease, ticket, at = struct.unpack(RUN, call, at)
    local ends = string.format(integer, now + lease)
    for _ = 1, (kind == RENEW or kind == RELEASE) and run_flags % 32 >= 16 and n or 0 do
      local told
      told, at = struct.unpack(TOKEN, call, at)
      new_token = math.max(new_token, told)
    end
    if kind == ASK then
      plain, at = new_used + n * weight <= limit and run_flags % 16 < 4 and (run_flags < 16 or run_flags < 32 and (pinned or want == limit)) and keep >= now + lease + IDLE, at + 12 * n
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
      plain = keep >= now + lease + IDLE and run_flags < 32
      new_first = math.min(new_first, now + lease)
      local from, of_run, with_slot = 0, 0, 0 -- permits that were granted together have consecutive tokens, and share a RECORD
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
    elseif kind == RELEASE and run_flags % 16 < 8 and run_flags < 32 then
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
    -- With its memory full, the server refuses each command that may need more
    -- memory, but no command after a script's first write. So a call that must
    -- succeed begins with a removal.
    if n_gone > 0 then
      redis.call('ZREM', KEYS[2], unpack(gone))
    elseif marks >= 2 then
      redis.call('ZREM', KEYS[2], ' ')
    end
    if n_adds > 0 then redis.call('ZADD', KEYS[2], unpack(adds)) end
    if n_gone > 0 then redis.call('HDEL', KEYS[1], unpack(gone)) end
    if new_used ~= used or new_token ~= token or new_first ~= first or new_keeps ~= keeps or new_keepers ~= keepers then
      redis.call('HSET', KEYS[1], '', struct.pack(STATE, MARK, limit, new_used, new_token, keep, new_first, fenced, alarm, 0, new_keepers, new_keeps, flags, ''), unpack(fields))
    end
    if write_keeper then write_keeper() end
    return struct.pack(HEAD, limit, 0, may + 16) .. table.concat(out)
  end
end
