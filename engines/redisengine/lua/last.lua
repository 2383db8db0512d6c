-- The last part of a call that was not plain: it carries out the requests by
-- the rules, and writes the changes.

-- A semaphore that begins must not overwrite foreign keys.
if not raw then
  for i, want in ipairs({'hash', 'zset', 'zset', 'zset', 'hash', 'hash', 'any', 'zset', 'hash', 'zset', 'hash'}) do
    local is = i ~= 7 and KEYS[i] and redis.call('TYPE', KEYS[i]).ok or 'none'
    if is ~= 'none' and (is ~= want or i == 1) then
      return redis.error_reply('WRONGTYPE ' .. KEYS[i] .. ' is a ' .. is .. ' that is not sema\'s')
    end
  end
  for i = 2, KEYS[8] and 10 or 6 do
    if i ~= 5 and i ~= 7 and redis.call('EXISTS', KEYS[i]) == 1 then redis.call('DEL', KEYS[i]) end -- rest of a deleted semaphore
  end
  local ttl = redis.call('PTTL', KEYS[5])
  if ttl > 0 then fenced = now + ttl * 1000 end
end

if flags % 16 >= 8 and not KEYS[8] then return redis.error_reply(string.format(HAS_KEYS, KEYS[1])) end
local R = rules()
-- The field '' is the semaphore itself. In known it is marked as no permit, because a
-- foreign program may have added a member '' to a zset.
local s = {
  limit = limit, used = used, token = token, keep = keep, first = first,
  alarm = alarm, queued = queued, keepers = keepers, keeps = keeps,
  pinned = flags % 2 == 1, slots = flags % 4 >= 2, paused = flags % 8 >= 4, due = math.huge, watcher = watcher,
  caller = caller, now = now, budget = MAX_BUDGET, pass = marks >= 2, inbox = string.sub(KEYS[1], 1, -6) .. 'inbox:',
  known = {[''] = false}, fields = {'', ''}, n_fields = 2, changed = {}, ends = {}, handed = {}, news = {}, heard = {},
  joins = {}, leaves = {}, new_lines = {}, foreign = {}, spent = {},
  only = {name = '', path = '', parent = '', last = '', line = 3, depth = 0, held = used, n = queued, cap = 0, share = 0, ruled = 0, state = 0, start = 0, seq = 0, level = 0, finish = 0, time = 0, others = 0, reserved = 0}, key_of = {}, swept = 0, reserved = 0,
  out = {}, last = {status = 0, n = 0, a = 0, b = 0, c = 0},
}
s.only.of = s.only
for k = 2, got and #got or 0 do s.known[ARGV[k + 1]] = got[k] end

if flags >= 64 then
  local text
  text, behind = struct.unpack(NAMED, raw, behind)
  s.observed = R.parse_observed(text)
end
if flags % 64 >= 32 then
  local ends = struct.unpack(COOLDOWN, raw, behind)
  if ends > now then s.cooldown, s.cooled_by = ends, string.sub(raw, behind + 8) end
end
if flags % 16 >= 8 then
  R.read_keys(s)
  s.keys = {}
  for id, value in pairs(s.known) do
    if value then s.known[id] = R.unwrap(s, id, value) end
  end
  local common, t = redis.call('HGET', KEYS[9], ''), s.keyed
  s.read_keys = true
  if common then
    local caps = {}
    caps[1], caps[2], caps[3], t.time, t.seq, t.epoch, t.swept, t.rules, t.runnable, t.over = struct.unpack(KEYED, common)
    if caps[1] + caps[2] + caps[3] > 0 then s.caps = caps end
    if #common > KEYED_SIZE then R.read_pools(s, string.sub(common, KEYED_SIZE + 1)) end
  else
    R.repair(s, 'q') -- the key was deleted
  end
end

if raw then R.expire(s) end
local rules_of = {'ask', 'renew', 'release', 'revoke', 'set_limit', 'mark', 'remove', 'mark', 'mark', 'set_key', 'set_key', 'report', 'cool'} -- by kind
local at, ids_at = start, 3
while at <= #call do
  local kind, run_flags, n, q = nil, nil, nil, {}
  kind, run_flags, n, q.limit, q.weight, q.lease, q.ticket, at = struct.unpack(RUN, call, at)
  q.wait, q.unfair, q.strict = run_flags % 2 == 1, run_flags % 4 >= 2, run_flags % 8 >= 4
  q.slot, q.pin, q.again, q.anew, q.others = run_flags % 16 >= 8, run_flags % 32 >= 16, run_flags % 64 >= 32, run_flags % 128 >= 64, run_flags >= 128
  q.keep, q.token, q.kind = now + q.lease + IDLE, 0, kind
  if q.limit >= WATCHED then q.limit, q.observe = q.limit - WATCHED, true else q.observe = false end
  local keyed, auto = kind == ASK_KEYED or kind == ASK_POOLED, kind == SET_LIMIT and q.anew
  if keyed or kind == SET_CAPS or kind == SET_POOLS then
    local caps = {}
    caps[1], caps[2], caps[3], at = struct.unpack(CAPS, call, at)
    if kind == ASK_POOLED or kind == SET_POOLS then q.pools, at = struct.unpack(NAMED, call, at) end
    if keyed then
      kind, q.caps = ASK, caps[1] + caps[2] + caps[3] > 0 and caps or nil
      if n > 1 and not s.only then R.fetch_asked(s, q, n, at) end
    else
      kind, q.changes = SET_LIMIT, caps
    end
  end
  local carry_out = R[auto and 'auto_limit' or rules_of[kind]]
  for _ = 1, n do
    local id
    if kind <= REVOKE then id, ids_at = ARGV[ids_at], ids_at + 1 end
    if kind == ASK then
      q.waited, q.behind, at = struct.unpack(ASKED, call, at)
      if q.others then q.who, at = struct.unpack(NAMED, call, at) end
      if keyed then q.key, at = struct.unpack(KEY_NAME, call, at) end
    elseif id then
      if q.pin then q.token, at = struct.unpack(TOKEN, call, at) end
      if q.anew then q.used, at = struct.unpack(NAMED, call, at) end
    elseif kind == SET_KEY or kind == UNSET_KEY then
      q.key, at = struct.unpack(KEY_NAME, call, at)
    elseif kind == REPORT_KIND then
      q.good, q.bad, q.waited, at = struct.unpack(TOTALS, call, at)
    elseif kind == COOL then
      q.who, at = struct.unpack(NAMED, call, at)
    elseif auto then
      q.auto, at = struct.unpack(AUTO, call, at)
    end
    if s.limit == 0 and not id and (kind ~= SET_LIMIT or auto or q.limit == 0) then
      R.answer(s, GONE, 0, 0, 0)
    else
      carry_out(s, q, id)
    end
  end
end
repeat
  R.grant(s, math.huge)
  s.due = s.round and s.round.due < math.huge and math.max(s.round.due, now + MIN_DUE) or math.huge
  if s.round then R.end_round(s) end
  R.write_holders(s)
until not R.watch(s)
if s.left then R.go_on(s, s.left) end
local marked = 0
if s.keeps > now or keep_for > 0 then
  local recalled = R.recall(s, s.refused or s.asker)
  marked = R.may_keep(s, keep_for) + (s.refused and recalled and 8 or 0)
end
if (s.again or s.asker and keep_for > 0) and not R.hears(s, caller) then marked = marked + 4 end
local recheck = 0
if s.asker then
  local next_end = R.next_end(s)
  if next_end < math.huge then recheck = math.max(1, next_end - now) end
end
R.answer(s, 0, 0, 0, 0) -- writes the last record
local room = s.queued == 0
if not s.only then room = R.none_runnable(s) end

R.write_lines(s)
if s.limit > 0 then
  if fence or s.acts then fenced = now + FENCED end
  local bits = (s.pinned and 1 or 0) + (s.slots and 2 or 0) + (s.paused and 4 or 0) + (s.only and 0 or 8) + ((s.keyed and s.keyed.over > 0 or s.pools and R.pool_over(s)) and 16 or 0) + (s.cooldown and 32 or 0) + (s.observed and 64 or 0)
  s.fields[2] = struct.pack(STATE, MARK, s.limit, s.used, s.token, s.keep, s.first, fenced, s.alarm, s.queued, s.keepers, s.keeps, bits, s.watcher) .. (s.observed and R.observed_text(s.observed) or '') .. (s.cooldown and struct.pack(COOLDOWN, s.cooldown) .. s.cooled_by or '')
  R.write_state(s)
  local left = math.ceil((s.keep - now) / 1000)
  if not s.only then
    R.write_turn(s)
    R.write_keys(s)
  end
  if s.pinned or s.paused or s.keyed and s.keyed.rules > 0 then
    if s.persist then redis.call('PERSIST', KEYS[1]) end
    if s.persist and s.keyed then redis.call('PERSIST', KEYS[9]) end
  elseif s.extended or not raw then
    redis.call('PEXPIRE', KEYS[1], left)
    if s.keyed then redis.call('PEXPIRE', KEYS[9], left) end
  end
  if s.keyed and (s.extended or s.new_turn) then redis.call('PEXPIRE', KEYS[8], left) end
  if s.keyed and (s.extended or s.new_lines[10]) then redis.call('PEXPIRE', KEYS[10], left) end
  if s.extended or not raw then
    redis.call('ZADD', KEYS[2], raw and used > 0 and not s.repaired and 'XX' or 'NX', 'inf', KEEPER) -- if KEEPER is missing, expire must notice that the key was deleted: XX does not add it
    redis.call('PEXPIRE', KEYS[2], left)
  end
  if s.queued > 0 and (s.extended or s.new_lines[3]) then redis.call('PEXPIRE', KEYS[3], left) end
  if s.slots and (s.extended or s.new_slots) then redis.call('PEXPIRE', KEYS[4], left) end
elseif raw then
  redis.call('DEL', KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[6])
  if s.keyed then redis.call('DEL', KEYS[8], KEYS[9], KEYS[10]) end
end
if fence or s.acts then
  R.prune(s, KEYS[5])
  redis.call('HSET', KEYS[5], caller, struct.pack(FENCE, number + (s.acts and 1 or 0), now + FENCED)) -- a call that acts refuses even its own copies
  redis.call('PEXPIRE', KEYS[5], FENCED / 1000)
end
if s.report or s.auto then
  R.prune(s, KEYS[11])
  if s.report then redis.call('HSET', KEYS[11], caller, s.report) end
  if s.auto then redis.call('HSET', KEYS[11], '', s.auto) end
  redis.call('PEXPIRE', KEYS[11], REPORTED / 1000)
end
if KEYS[7] and KEYS[7] ~= KEYS[1] then redis.call('SET', KEYS[7], ARGV[3 + ids], 'PX', ARGV[4 + ids]) end

-- The messages come last, and an error of theirs is ignored: all of the step
-- must be written, even for a user without rights to the channels.
local own = ''
for who, news in pairs(s.news) do
  local lines = {}
  for _, id in ipairs(news.grants) do
    lines[#lines + 1] = s.handed[id]
    s.handed[id] = nil
  end
  if news.ask then lines[#lines + 1] = 'a\n' end
  if news.renew then lines[#lines + 1] = 'n\n' end
  if news.recheck then lines[#lines + 1] = string.format('r %.0f\n', news.recheck) end
  if news.recall then lines[#lines + 1] = 'c\n' end
  local message = table.concat(lines)
  if who == caller then
    own = message
  elseif message ~= '' then
    redis.pcall(string.byte(who) == 115 and 'SPUBLISH' or 'PUBLISH', s.inbox .. who, message)
  end
end
local cap = ''
if s.observed then marked = marked + 128 end
if s.paused or s.cooldown then marked = marked + 2 end
if s.caps then marked, cap = marked + 32, struct.pack('<ddd', s.caps[1], s.caps[2], s.caps[3]) end
if s.there and s.there ~= '' then marked, cap = marked + 64, cap .. struct.pack('<I4', #s.there) .. s.there end
return struct.pack(HEAD, s.limit, recheck, marked + (room and 16 or 0)) .. cap .. table.concat(s.out) .. own
