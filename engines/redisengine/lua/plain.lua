-- The fast path. It carries out a call of one request: an ask that can be granted, a
-- renewal or a release. It leaves any other call to rules.lua, with nothing changed.
--
-- What it may assume, and why:
--   * Nobody waits (queued is 0): so no step has to grant, and no order is to be kept.
--   * No lease has ended (first is later than now): so nothing has to be removed before the request.
--   * No permit has a slot, nothing is paused or cools down, no pool and no key is over what it may hold (the flags).
--   * Nothing of pools is reserved, and no set of pools waits, because nobody does.
--   * The call is not late: there are fences only after a call whose outcome was unknown.
--   * The state is whole: what a zset says of an id agrees with it, or the command that writes says otherwise (ZADD NX,
--     ZREM), and then nothing has been written yet.
local keyed = flags % 16 >= 8
local plain = raw and ids == 1 and queued == 0 and first > now and flags % 8 < 4 and flags < 16 and not fence and (not KEYS[7] or KEYS[7] == KEYS[1]) and (not keyed or KEYS[9])

-- An ask is plain if its only flags are wait and unfair; or also newest, if the limit
-- is pinned or equal to the ask's.
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

-- The write command tells whether the id is new or held, so that no read is needed.
if plain then
  local kind, run_flags, n, want, weight, lease, ticket, next_run = struct.unpack(RUN, call, start)
  local id, ends = ARGV[3], now + lease
  local score -- the end of the lease; see INTEGER in layout.lua: its check would cost more than the conversion
  if kind ~= RELEASE then
    score = string.format('%d', ends)
    if #score ~= 16 then score = string.format('%.0f', ends) end
  end
  local told = 0 -- the last token that the client knows of
  local status, a, b, c, permit = nil, 0, 0, 0, nil
  local changed = new_keeps ~= keeps or new_keepers ~= keepers
  local key, value, c1, c2, c3, there = '', nil, 0, 0, 0, '' -- the permit's key and what it takes, its entry, the caps of keys, and the pools
  local path, takes, pools_of = '', nil, nil -- the key alone, what it takes, and the pools as they will be
  local change, with -- see plainpools.lua
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
    path = key
    if string.find(key, '\2', 1, true) then path, takes = string.match(key, '^([^\2]*)\2([^\3]*)') end
    local leaf, above, n, at = 'k' .. path, nil, 2, string.find(path, '\1', 1, true)
    while at do -- those above come first
      above = above or {''}
      above[n], above[n + 1], n = 'k' .. string.sub(path, 1, at - 1), leaf, n + 1
      at = string.find(path, '\1', at + 1, true)
    end
    local known = above and redis.call('HMGET', KEYS[9], unpack(above)) or redis.call('HMGET', KEYS[9], '', leaf)
    if known[1] then
      c1, c2, c3 = struct.unpack('<ddd', known[1])
      if #known[1] > KEYED_SIZE then there = string.match(known[1], '^[^%z]*', KEYED_SIZE + 1) end
    end
    local good = known[1] and (kind ~= ASK_KEYED or run_flags < 16 or pinned or w1 == c1 and w2 == c2 and w3 == c3 and (pools or '') == there)
    if takes and kind ~= RENEW and good then
      change, with = plain_pools()
      pools_of = change(known[1], takes, kind == RELEASE and -1 or 1, keep)
      good = pools_of ~= nil
    end
    for i = 2, (kind == ASK_KEYED or kind == RELEASE) and good and n or 1 do
      local name, raw, held, tickets, cap, _, bits, record = i < n and above[i] or leaf, known[i], 0, 0, 0, 0, i < n and 2 or 0, nil
      if raw then held, tickets, cap, _, bits = struct.unpack('<ddddB', raw) end
      good = good and (bits >= 2) == (i < n) -- else the callers of the key queue elsewhere, or will
      if cap == 0 and path ~= '' then cap = i == 2 and c1 or i == 3 and c2 or c3 end
      good = good and (cap == 0 or held + (kind == RELEASE and -weight or weight) <= cap) -- else the key is over its cap
      if kind == ASK_KEYED then
        record = struct.pack('<d', held + weight) .. (raw and string.sub(raw, 9) or bits == 0 and string.rep('\0', KEY_SIZE - 8) or struct.pack('<dddB', 0, 0, 0, bits) .. string.rep('\0', KEY_SIZE - 33))
      elseif held > weight or tickets > 0 or bits % 2 == 1 then
        record = struct.pack('<d', held - weight) .. string.sub(raw, 9)
      elseif unused then
        unused[#unused + 1] = name
      else
        unused = {name}
      end
      good = good and (raw or kind == ASK_KEYED)
      if record and takes then record = with(record, takes, kind == RELEASE and -weight or weight) end
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
      permit = key == '' and struct.pack(PERMIT, 'h', token, now, -1) or struct.pack(PERMIT, 'H', token, now, -1) .. key .. (pools_of and pools_of.spent or '') .. '\0'
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
      if permit then redis.call('HSET', KEYS[1], '', state, id, permit) else redis.call('HSET', KEYS[1], '', state) end
    end
    if pools_of then
      records = records or {}
      records[#records + 1], records[#records + 2] = '', pools_of.keyed
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
