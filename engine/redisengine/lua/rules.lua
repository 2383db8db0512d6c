-- The rules, as functions of the same names and in the same order as those of
-- package internal/ledger, which is their specification. They are made only
-- when plain.lua could not do all, because making functions costs.
--
-- s is the semaphore: the fields of STATE, and what the step knows and has
-- changed. Writes wait in s until the step's end, so that an error on the way
-- leaves nothing behind, and a batch is written at once: s.known has what the
-- state says of ids (false: nothing), s.fields and then s.changed are what is to
-- be written of it; s.ends, and s.joins and then s.places, are changes of
-- holders and waiters (false: to be removed).
--
-- Each function here is a field of the table R.

-- ask grants, queues or refuses. q is the run of requests.
ask = function(s, q, id)
  if s.limit == 0 and q.weight > q.limit then return R.answer(s, TOO_HEAVY, 0, 0, 0) end
  if s.limit == 0 or s.keep < q.keep then R.open(s, q) end
  local known = s.known[id] -- false for most: then much can be left out
  if known == nil then known = R.look(s, id) end
  local is, token, slot
  if known then is, token, slot = R.holder(s, id) end
  if is and not s.handed[id] then
    if is ~= 'h' then return R.answer(s, REVOKED, 0, 0, 0) end
    return R.answer(s, GRANTED, token, slot, R.end_of(s, id) - s.now)
  end
  if q.strict and q.limit ~= s.limit then
    R.drop(s, id)
    return R.answer(s, LIMIT_DIFFERS, 0, 0, 0)
  end
  if q.weight > s.limit then
    R.drop(s, id)
    return R.answer(s, TOO_HEAVY, 0, 0, 0)
  end
  if s.queued > 0 and not s.settled then R.grant(s) end
  if known then is, token, slot = R.holder(s, id) end
  if is then -- its turn came in this step
    R.untell(s, id)
    R.extend(s, id, s.now + q.lease)
    return R.answer(s, GRANTED, token, slot, q.lease)
  end
  local place = s.now - q.waited
  local first = q.unfair or s.queued == 0 or s.head == id or q.wait and place < s.head_place
  if first and q.weight <= s.limit - s.used then
    if known then R.drop(s, id) end
    token, slot = R.take(s, id, q.weight, q.slot, s.now + q.lease)
    return R.answer(s, GRANTED, token, slot, q.lease)
  end
  if not q.wait then
    R.drop(s, id)
    return R.answer(s, REFUSED, 0, 0, 0)
  end
  local ticket, ahead, old_end, old_place = s.now + q.ticket, nil, nil, nil
  if known then old_end, old_place = R.ticket(s, id) end
  if old_end and old_place <= place then
    ahead = R.position(s, id)
    R.put(s, id, struct.pack(TICKET, 'q', ticket, old_place))
  else
    if old_end then R.drop(s, id) end -- this call took less time than those before
    ahead = R.enqueue(s, id, place)
    R.put_new(s, id, struct.pack(TICKET, 'q', ticket, place))
  end
  s.asker = id
  return R.answer(s, QUEUED, ticket, ahead, 0)
end,

-- ask_all carries out a run of asks. Those who come last, as most do, share
-- what has been found for the one before them.
ask_all = function(s, q, from, n, at)
  local l, ticket, alike = s.last, s.now + q.ticket, false
  for k = from, from + n - 1 do
    local id = ARGV[k]
    q.waited, at = struct.unpack(WAITED, call, at)
    local place = s.now - q.waited
    if alike and s.tail and place > s.tail_place and s.known[id] == false then
      R.enqueue(s, id, place)
      R.put_new(s, id, struct.pack(TICKET, 'q', ticket, place))
      s.asker, l.n = id, l.n + 1
    else
      R.ask(s, q, id)
      alike = q.wait and not q.unfair and s.settled and l.status == QUEUED and l.a == ticket and l.b + l.n == s.queued
    end
  end
  return at
end,

-- renew extends a permit.
renew = function(s, q, id)
  local is, token, slot = R.holder(s, id)
  if not is then return R.answer(s, GONE, 0, 0, 0) end
  if is ~= 'h' then return R.answer(s, REVOKED, 0, 0, 0) end
  R.untell(s, id)
  R.extend(s, id, s.now + q.lease)
  R.remember(s, q.lease)
  R.answer(s, GRANTED, token, slot, q.lease)
end,

-- release gives back a permit or leaves the queue.
release = function(s, q, id)
  R.untell(s, id)
  local found = R.holder(s, id)
  if found then R.forget(s, id) else found = R.drop(s, id) end
  R.answer(s, found and DONE or GONE, 0, 0, 0)
end,

-- revoke makes the next renewal of a permit fail, and has its holder renew now.
revoke = function(s, q, id)
  local is, token, slot, since = R.holder(s, id)
  if is then
    R.put(s, id, struct.pack(PERMIT, 'r', token, since, slot))
    R.tell(s, R.client(id)).renew = true -- and so hear of it
  end
  R.answer(s, is and DONE or GONE, 0, 0, 0)
end,

-- set_limit stores the limit; pin makes it outlive idleness.
set_limit = function(s, q)
  s.limit, s.settled = q.limit, false
  if q.pin and not s.pinned then s.pinned, s.persist = true, true end
  R.remember(s, 0)
  R.answer(s, DONE, 0, 0, 0)
end,

-- unset_limit lets an idle semaphore forget its limit again.
unset_limit = function(s)
  if s.limit == 0 then return R.answer(s, GONE, 0, 0, 0) end
  s.pinned, s.persist, s.extended = false, false, true
  R.remember(s, 0)
  R.answer(s, DONE, 0, 0, 0)
end,

-- remove forgets a semaphore that nobody uses.
remove = function(s)
  if s.limit == 0 then return R.answer(s, GONE, 0, 0, 0) end
  if s.used > 0 or s.queued > 0 then return R.answer(s, IN_USE, 0, 0, 0) end
  s.limit, s.pinned, s.persist, s.keep, s.token = 0, false, false, 0, 0
  R.answer(s, DONE, 0, 0, 0)
end,

-- grant hands free weight to the head of the queue, as far as it goes. It
-- reads as many tickets at once as there may be room for, and one more.
grant = function(s)
  while s.queued > 0 and not s.settled do
    R.write_waiters(s)
    local list = redis.call('ZRANGE', KEYS[3], 0, math.max(0, math.min(s.limit - s.used, s.queued - 1, 500)))
    if not list[1] then return R.mend(s, 'q') end
    R.look_all(s, list)
    for _, id in ipairs(list) do
      local ticket, place = R.ticket(s, id)
      local weight, slot = R.shape(id)
      if ticket and ticket > s.now and weight <= s.limit and weight > s.limit - s.used then
        s.head, s.head_place, s.settled = id, place, true
        break
      end
      local who = R.client(id)
      R.leave(s, id)
      if not ticket or ticket <= s.now then
        -- fell silent
      elseif weight > s.limit then
        R.tell(s, who).ask = true -- could never be served; asking again tells its client
      elseif R.reach(s, who) then
        local token, index = R.take(s, id, weight, slot, ticket)
        local grants = R.tell(s, who).grants
        grants[#grants + 1] = id
        s.handed[id] = 'g ' .. id .. ' ' .. string.format(INTEGER, token) .. ' ' .. index .. ' ' .. string.format(INTEGER, ticket) .. '\n'
      end
    end
  end
end,

-- watch sees to it that somebody calls when the first lease ends, if anybody
-- waits. s.first is no later than that, which mostly tells enough.
watch = function(s)
  while s.queued > 0 and s.used > 0 do
    local calls = s.watcher ~= '' and s.now < s.alarm and R.ticket(s, s.watcher)
    if calls and s.alarm <= s.first then return end
    local first = R.next_end(s)
    if calls and s.alarm <= first then return end
    s.alarm = first
    if s.asker and R.ticket(s, s.asker) then
      s.watcher = s.asker
      return
    end
    R.write_waiters(s)
    local tail = redis.call('ZRANGE', KEYS[3], -1, -1)[1]
    if not tail then return R.mend(s, 'q') end
    if (R.ticket(s, tail) or 0) > s.now and R.reach(s, R.client(tail)) then
      s.watcher, R.tell(s, R.client(tail)).recheck = tail, math.max(1, first - s.now)
      return
    end
    R.leave(s, tail)
  end
  s.alarm, s.watcher = 0, ''
end,

-- take makes a holder; its slot is the lowest that is free. Slots are distinct
-- numbers, so as many as x of them below x means that none is free there.
take = function(s, id, weight, slotted, lease_end)
  local slot = -1
  if slotted then
    local low, high = 0, redis.call('ZCARD', KEYS[4])
    s.new_slots = s.new_slots or high == 0
    while low < high do
      local middle = math.floor((low + high) / 2)
      if redis.call('ZCOUNT', KEYS[4], 0, middle) == middle + 1 then low = middle + 1 else high = middle end
    end
    slot = low
    R.begin(s)
    redis.call('ZADD', KEYS[4], slot, id)
    s.slots = true
  end
  s.token = math.max(s.token + 1, s.now)
  s.used = s.used + weight
  R.put(s, id, struct.pack(PERMIT, 'h', s.token, s.now, slot))
  R.extend(s, id, lease_end)
  return s.token, slot
end,

-- extend gives a permit another end of its lease.
extend = function(s, id, lease_end)
  s.ends[id], s.moved = lease_end, true
  s.first = math.min(s.first, lease_end)
end,

-- forget removes a permit.
forget = function(s, id)
  local weight, slot = R.shape(id)
  s.used, s.settled, s.moved = s.used - weight, false, true
  R.put(s, id, false)
  s.ends[id], s.removes = false, true
  if slot then
    R.begin(s)
    redis.call('ZREM', KEYS[4], id)
  end
end,

-- enqueue puts a ticket into its place, and returns how many are before it.
-- Who comes last, as most do, costs no call.
enqueue = function(s, id, place)
  if not s.tail then
    R.write_waiters(s)
    local list = redis.call('ZRANGE', KEYS[3], -1, -1, 'WITHSCORES')
    if s.queued == 0 then s.new_waiters = true end
    s.tail, s.tail_place = list[1] or '', tonumber(list[2] or -math.huge)
  end
  s.places[id] = nil -- it may have left in this step
  local n = s.n_joins
  s.joins[n + 1], s.joins[n + 2], s.n_joins = string.format(INTEGER, place), id, n + 2
  s.queued = s.queued + 1
  if place > s.tail_place or place == s.tail_place and id > s.tail then
    s.tail, s.tail_place = id, place
    if s.queued == 1 then s.head, s.head_place, s.settled = id, place, true end
    return s.queued - 1
  end
  s.settled = false -- it may be the head
  return R.position(s, id)
end,

-- drop removes a ticket, and reports whether there was one.
drop = function(s, id)
  if not R.ticket(s, id) then return false end
  R.write_waiters(s) -- it may have joined in this step
  R.leave(s, id)
  s.settled = false
  return true
end,

-- position is where a ticket is in the queue.
position = function(s, id)
  R.write_waiters(s)
  return redis.call('ZRANK', KEYS[3], id) or 0
end,

-- open makes sure the semaphore exists, with the limit the first user gives.
open = function(s, q)
  if s.limit == 0 then s.limit = q.limit end
  R.remember(s, q.lease)
end,

-- remember keeps the limit known, and the keys, while a lease given now may
-- live, and a while; in steps, because setting a time to live costs.
remember = function(s, lease)
  if s.keep < s.now + lease + 60000000 then
    s.keep, s.extended = s.now + 2 * (lease + 60000000), true
  end
end,

-- expire ends the permits whose lease is over. It leaves what is more than a
-- thousand to the next steps: their weight is still taken, but they are gone.
expire = function(s)
  if s.first > s.now then return end
  local list = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', string.format(INTEGER, s.now), 'LIMIT', 0, 1000)
  R.look_all(s, list)
  for _, id in ipairs(list) do
    if R.holder(s, id) then R.forget(s, id) end
    s.ends[id] = false
  end
  local after = redis.call('ZRANGE', KEYS[2], #list, #list, 'WITHSCORES')
  if not after[1] then R.mend(s, 'h') end
  s.first, s.moved = tonumber(after[2] or math.huge), false
  s.behind = s.first <= s.now
end,

-- next_end is when the first lease ends.
next_end = function(s)
  if s.moved ~= false then
    R.write_holders(s)
    local list = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
    s.first, s.moved = tonumber(list[2] or math.huge), false
  end
  return s.first
end,

-- answer gives the next request its answer: with the last, if it goes on.
answer = function(s, status, a, b, c)
  local l, n = s.last, s.last.n
  if status == l.status and (status == GRANTED and a == l.a + n and b == -1 and l.b == -1 and c == l.c
    or status == QUEUED and a == l.a and b == l.b + n or status > QUEUED) then
    l.n = n + 1
    return
  end
  if n > 0 then s.out[#s.out + 1] = struct.pack(RECORD, l.status, n, l.a, l.b, l.c) end
  l.status, l.n, l.a, l.b, l.c = status, 1, a, b, c
end,

-- A client that nobody listens for is not reached; the caller always is.
reach = function(s, who)
  if s.reached[who] == nil then
    local count = redis.call('PUBSUB', string.byte(who) == 115 and 'SHARDNUMSUB' or 'NUMSUB', s.inbox .. who)
    s.reached[who] = tonumber(count[2]) > 0
  end
  return s.reached[who]
end,

-- tell is what a client's inbox gets at the end of the step.
tell = function(s, who)
  local news = s.news[who]
  if not news then
    news = {grants = {}}
    s.news[who] = news
  end
  return news
end,

-- untell takes back that a permit was handed over in this step.
untell = function(s, id) s.handed[id] = nil end,
