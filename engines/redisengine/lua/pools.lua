-- The rules for pools, which are further limits: see internal/ledger/pools.go. They are functions of R,
-- made at the first use of one.
--
--   s.there     the amounts that there are, as text; nil without pools
--   s.pools     limit and use of each pool by name, also of those that ended while some is in use
--   s.waiting   the number of tickets of each set of pools; s.sets are their names in order, also
--               of those that waited when the step began
--   s.round     what grant has reserved: the leaves for whose tickets, and the keys to revisit after that
--   s.reserved  the weight that is reserved of the limit

-- split returns the path of a permit or ticket, and what it takes.
R.split = function(counted)
  local at = string.find(counted, '\2', 1, true)
  if not at then return counted, '' end
  return string.sub(counted, 1, at - 1), string.sub(counted, at + 1)
end

-- takes returns what a permit or ticket takes, and the set: the names, with commas between; nil without any. The requests of a
-- call often take the same, so it is read once.
local takes_of, amounts_of = {}, {}
R.takes = function(counted)
  local of = takes_of[counted or '']
  if not of then
    local _, takes = R.split(counted or '')
    of = {takes, takes ~= '' and string.gsub(takes, '=%d+', '') or nil}
    takes_of[counted or ''] = of
  end
  return of[1], of[2]
end

-- amounts iterates over the places, names and amounts of a text.
local function next_amount(list, at)
  if list[at + 2] then return at + 2, list[at + 2], list[at + 3] end
end

R.amounts = function(text)
  local list, n = amounts_of[text], 1
  if not list then
    list = {}
    for name, amount in string.gmatch(text, '([^=,]+)=(%d+)') do list[n], list[n + 1], n = name, tonumber(amount), n + 2 end
    amounts_of[text] = list
  end
  return next_amount, list, -1
end

-- free returns how much of a pool is neither used nor reserved.
R.free = function(s, p)
  local used = p.unit and R.out(s, p) or p.used
  return p.limit - used - p.reserved
end

-- bytes_before reports whether a text is before another one by its bytes. Lua itself compares by the server's locale.
R.bytes_before = function(a, b)
  local at = 1
  while at <= #a and string.byte(a, at) == string.byte(b, at) do at = at + 1 end
  return at <= #b and (at > #a or string.byte(a, at) < string.byte(b, at))
end

-- class returns a key's class of a set; nil is the set of those that take nothing.
R.class = function(s, k, set) return set and R.key(s, set .. '\2' .. k.name) or k end

R.class_of = function(s, id)
  local _, set = R.takes(s.key_of[id])
  return R.class(s, R.key_of(s, id), set)
end

-- classes returns the classes of a key that wait, or did so before, in the order of their sets.
R.classes = function(s, k)
  local all, list = k.classes, {}
  if not all or #all ~= #s.sets then
    local names = {}
    for i, set in ipairs(s.sets) do names[i] = set .. '\2' .. k.name end
    if names[1] then R.fetch(s, names) end
    all = {}
    for i, name in ipairs(names) do all[i] = R.key(s, name) end
    k.classes = all
  end
  if k.n > 0 or k.seq > 0 then list[1] = k end
  for _, n in ipairs(all) do
    if n.n > 0 or n.seq > 0 then list[#list + 1] = n end
  end
  return list
end

-- schedule puts the classes of a key into their lists.
R.schedule = function(s, k)
  local list = R.classes(s, k)
  local all = list[2] and R.blocks_all(s, k, list)
  k.changed = true
  for _, n in ipairs(list) do R.list(s, n, all) end
end

-- blocks_all reports whether a key blocks the head of all its classes. What it gets back is for that ticket, so all its
-- classes are blocked.
R.blocks_all = function(s, k, list)
  local first, first_place, at, best
  for _, n in ipairs(list or R.classes(s, k)) do
    local id, place, leaf = nil, nil, nil
    if n.n > 0 then id, place, leaf = R.head(s, n) end
    if id and k.inner then
      local top = R.key(s, R.runnable(s, n.name)[1])
      if not best or R.before_set(top, best) then first, at, best = id, leaf, top end
    elseif id and (not first or place < first_place or place == first_place and R.bytes_before(id, first)) then
      first, first_place, at = id, place, leaf
    end
  end
  if not first then return false end
  local weight = R.parse_id(first)
  at = at.of
  while at ~= k and weight <= R.cap_of(s, at) - at.held do at = at.up end
  return at == k and R.blocks(s, k, weight, 0)
end

-- before_set is before for classes of different sets. Only the weight that their keys hold with pools that both want counts:
-- if all counted, a key that holds much without those pools could wait for ever.
R.before_set = function(a, b)
  local both = a.set and b.set and string.gsub(a.set, '[^,]+', function(pool)
    return not string.find(',' .. b.set .. ',', ',' .. pool .. ',', 1, true) and '' or nil
  end)
  local x, y = R.level(a, both), R.level(b, both)
  if x ~= y then return x < y end
  return a.finish < b.finish or a.finish == b.finish and a.seq < b.seq
end

-- level returns how many whole shares the key of a class holds: with that one of some pools with which it holds the most; in
-- all without any.
R.level = function(k, set)
  local held
  for pool in string.gmatch(set or '', '[^,]+') do held = math.max(held or 0, k.of.with and k.of.with[pool] or 0) end
  return math.floor((held or k.of.held) * 100 / R.shares(k.of))
end

-- next_of_sets returns the first class below the root, without the sets that want awaited pools; name is that of those that
-- want no pools.
R.next_of_sets = function(s, name)
  local best = name and R.key(s, name)
  for _, set in ipairs(s.sets) do
    local top = not R.wants_awaited(s, set) and R.runnable(s, set .. '\2')[1]
    local n = top and R.key(s, top)
    if n and (not best or R.before_set(n, best)) then best = n end
  end
  return best and best.name
end

-- wants_awaited reports whether a set wants some of a pool for which a ticket ahead of it waits.
R.wants_awaited = function(s, set)
  for pool in string.gmatch(set, '[^,]+') do
    if s.pools[pool] and s.pools[pool].awaited then return true end
  end
  return false
end

-- other_sets_ahead reports whether another set is runnable, or a key of a leaf's path is for the ticket of another set.
R.other_sets_ahead = function(s, k)
  local own = k.set
  if own and R.runnable(s, '')[1] then return true end
  for _, set in ipairs(s.sets) do
    if set ~= own and R.runnable(s, set .. '\2')[1] then return true end
  end
  while k do
    local list, other = R.classes(s, k.of), false
    for _, n in ipairs(list) do other = other or n ~= k and n.n > 0 end
    if other and R.blocks_all(s, k.of, list) then return true end
    k = k.up
  end
  return false
end

-- reserve keeps free for a ticket all that it wants, until the round ends. A pool that has too little for it is awaited. If time
-- alone brings all that the ticket lacks, only rates and places of its own keys are kept free for it: meanwhile others use the rest.
R.reserve = function(s, k, weight, takes)
  local timed, due = false, math.huge
  if s.rated then timed, due = R.lacks(s, weight, takes) end
  s.round = s.round or {leaves = {}, revisit = {}, due = math.huge}
  s.round.leaves[#s.round.leaves + 1] = k.of
  s.round.due = math.min(s.round.due, due)
  if not timed then s.reserved = s.reserved + weight end
  local n = k.of
  while n do
    n.reserved, n = n.reserved + weight, n.up
  end
  for _, pool, amount in R.amounts(takes) do
    local p = s.pools[pool]
    if not timed or p.unit then
      p.awaited = p.awaited or amount > R.free(s, p)
      p.reserved = p.reserved + amount
    end
  end
end

-- end_round gives up what is reserved.
R.end_round = function(s)
  local was = s.round
  if not was then return end
  s.round, s.reserved = nil, 0
  for _, k in ipairs(was.leaves) do
    while k do
      k.reserved = 0
      k = k.up
    end
  end
  for _, p in pairs(s.pools) do p.reserved, p.awaited = 0, nil end
  for _, k in ipairs(was.revisit) do R.reschedule(s, k) end
end

-- pools_fit reports whether there is as much of pools, without what is reserved.
R.pools_fit = function(s, takes)
  if s.observed then return true end
  for _, pool, n in R.amounts(takes) do
    local p = s.pools and s.pools[pool]
    if not p or n > R.free(s, p) then return false end
  end
  return true
end

-- backfills reports whether a demand fits beside all that is reserved, and nobody of its class or path is ahead of it: then
-- serving it keeps nobody waiting any longer. k is the leaf.
R.backfills = function(s, k, weight, takes, set)
  if weight > R.limits(s) - s.used - s.reserved or not R.keys_fit(s, k, weight) or not R.pools_fit(s, takes) then return false end
  while k do
    if R.class(s, k, set).state == 2 or R.blocks_all(s, k) then return false end
    k = k.up
  end
  return true
end

-- too_small returns the first pool that has less in all than is taken, counted from 1 on, and its amount; 0: none has.
R.too_small = function(pools, takes)
  local at = 0
  for _, pool, n in R.amounts(takes) do
    at = at + 1
    local p = pools and pools[pool]
    if not p or n > p.limit then return at, p and p.limit or 0 end
  end
  return 0, 0
end

-- too_small_at_first is too_small for an ask that says what pools there are.
R.too_small_at_first = function(q)
  local there, _, takes = {}, R.split(q.key)
  for _, pool, n in R.amounts(q.pools or '') do there[pool] = {limit = n} end
  return R.too_small(there, takes)
end

-- use_pools changes what is in use of pools, and the weight held with some of them, by the permit of a leaf. The sign is the
-- weight's. A pool that there is nothing of is forgotten.
R.use_pools = function(s, k, weight, takes)
  s.pools = s.pools or {}
  for _, pool, n in R.amounts(takes) do
    local p = s.pools[pool] or {limit = 0, used = 0, reserved = 0, full = 0, given = 0}
    p.used = p.used + (weight < 0 and -n or n)
    s.pools[pool] = (p.limit > 0 or p.used > 0) and p or nil
    local key = k
    while key do
      key.with = key.with or {}
      key.with[pool] = (key.with[pool] or 0) + weight
      key = key.up
    end
  end
end

-- count_set changes the number of tickets of a class's set, and of the tickets that other classes have beside the key's own.
R.count_set = function(s, k, n)
  local set = k.set
  s.pools = s.pools or {} -- a repeated ask may name a pool that there is not
  if not s.waiting[set] then
    s.sets[#s.sets + 1] = set
    table.sort(s.sets, R.bytes_before)
  end
  s.waiting[set], s.settled = (s.waiting[set] or 0) + n, false
  k = k.of
  while k do
    k.others, k.changed = k.others + n, true
    k = k.up
  end
end

-- waiting_sets returns how many sets of pools wait.
R.waiting_sets = function(s)
  local n = 0
  for _, tickets in pairs(s.waiting) do
    if tickets > 0 then n = n + 1 end
  end
  return n
end

R.too_many_sets = function(s, set) return (s.waiting[set] or 0) == 0 and R.waiting_sets(s) >= MAX_SETS end

-- drop_silent makes room for a set where too many wait: it drops the first tickets of sets whose clients have not asked
-- again in time. Nobody may have looked at them.
R.drop_silent = function(s, set)
  if not R.too_many_sets(s, set) then return end
  for _, other in ipairs(s.sets) do
    while s.budget > 0 do
      local top = R.runnable(s, other .. '\2')[1]
      local id = top and R.head(s, R.key(s, top))
      if not id or (R.ticket(s, id) or 0) > s.now then break end
      s.budget = s.budget - 1
      R.drop(s, id)
    end
  end
end

-- set_pools has exactly these pools from now on.
R.set_pools = function(s, there)
  if there == (s.there or '') then return end
  if s.only then R.name_keys(s) end
  s.there, s.limited, s.settled, s.pools = there, true, false, s.pools or {}
  local was, amounts = s.pools, {}
  s.pools, s.rated = {}, false
  for pool, n, rate in R.rates(there) do
    amounts[pool] = n
    s.pools[pool] = was[pool] or {used = 0, reserved = 0, full = 0, given = 0}
    R.set_rate(s, s.pools[pool], R.unit(n, rate))
  end
  for pool, p in pairs(was) do
    if not amounts[pool] and p.used > 0 then
      s.pools[pool] = p
      R.set_rate(s, p, nil)
    end
  end
  for pool, p in pairs(s.pools) do p.limit = amounts[pool] or 0 end
  R.remember_rates(s)
end

-- changed_pools returns the pools after a change of some, of which 0 ends one; nil if there would be too many.
R.changed_pools = function(s, some)
  local amounts, names, list = {}, {}, {}
  for pool, n, rate in R.rates(s.there or '') do amounts[pool] = string.format('%.0f', n) .. rate end
  for pool, n, rate in R.rates(some) do amounts[pool] = n > 0 and string.format('%.0f', n) .. rate or nil end
  for pool in pairs(amounts) do names[#names + 1] = pool end
  if #names > MAX_POOLS then return nil end
  table.sort(names, R.bytes_before)
  for i, pool in ipairs(names) do list[i] = pool .. '=' .. amounts[pool] end
  return table.concat(list, ',')
end

-- pool_over reports whether more of a pool is in use than there is.
R.pool_over = function(s)
  for _, p in pairs(s.pools) do
    if p.limit > 0 and not p.unit and p.used > p.limit then return true end
  end
  return false
end

-- read_pools reads what is behind KEYED, and pools_text is it. read_with reads what is behind the head of a key, and
-- with_text is it.
R.read_pools = function(s, text)
  local there, used, sets, rates = string.match(text, '^([^%z]*)%z([^%z]*)%z([^%z]*)%z?(.*)$')
  s.there, s.pools, s.reserved = there, {}, 0
  s.rated = string.find(there, '/', 1, true) ~= nil
  for pool, n, rate in R.rates(there) do
    local unit = rate ~= '' and R.unit(n, rate) or nil
    s.pools[pool] = {limit = n, used = 0, reserved = 0, unit = unit, full = 0, given = 0}
  end
  for _, pool, n in R.amounts(used) do
    s.pools[pool] = s.pools[pool] or {limit = 0, reserved = 0, full = 0, given = 0}
    s.pools[pool].used = n
  end
  for pool, full, given in string.gmatch(rates, '([^=,]+)=(%S+) ([^,]+)') do
    s.pools[pool].full, s.pools[pool].given = tonumber(full), tonumber(given)
  end
  for set, n in string.gmatch(sets, '([^=;]+)=(%d+)') do
    s.sets[#s.sets + 1], s.waiting[set] = set, tonumber(n)
  end
  table.sort(s.sets, R.bytes_before)
end

R.pools_text = function(s)
  local used, sets, rates = {}, {}, {}
  for pool, p in pairs(s.pools) do
    if p.used > 0 then used[#used + 1] = pool .. '=' .. string.format('%.0f', p.used) end
    if p.full > 0 and p.limit + p.used > 0 then rates[#rates + 1] = string.format('%s=%.17g %.17g', pool, p.full, p.given) end
  end
  for set, n in pairs(s.waiting) do
    if n > 0 then sets[#sets + 1] = set .. '=' .. n end
  end
  return pools_of(s.there or '', used, sets, rates)
end

R.read_with = function(k, text)
  local others, with = string.match(text, '^(%d+) (.*)$')
  k.others, k.with = tonumber(others), {}
  for _, pool, weight in R.amounts(with) do k.with[pool] = weight end
end

R.with_text = function(k)
  local list = {}
  for pool, weight in pairs(k.with or {}) do
    if weight > 0 then list[#list + 1] = pool .. '=' .. string.format('%.0f', weight) end
  end
  if k.others == 0 and not list[1] then return '' end
  return '\0' .. k.others .. ' ' .. table.concat(list, ',')
end
