-- The rules for pools, which are further limits: see internal/ledger/pools.go. They are functions of R,
-- made at the first use of one.
--
--   s.there     the amounts that there are, as text; nil without pools
--   s.pools     limit and use of each pool by name, also of those that ended while some is in use
--   s.waiting   the number of tickets of each set of pools; s.sets are their names in order, also
--               of those that waited when the step began
--   s.reserving what grant has reserved: the leaves for whose tickets, and the keys that it moved meanwhile
--   s.reserved  the weight that is reserved of the limit

-- split returns the path of a permit or ticket, and what it takes.
R.split = function(counted)
  local at = string.find(counted, '\2', 1, true)
  if not at then return counted, '' end
  return string.sub(counted, 1, at - 1), string.sub(counted, at + 1)
end

-- takes returns what a permit or ticket takes, and the set: the names, with commas between; nil without any.
R.takes = function(counted)
  local _, takes = R.split(counted or '')
  if takes == '' then return '', nil end
  return takes, (string.gsub(takes, '=%d+', ''))
end

-- amounts iterates over the names and amounts of a text.
R.amounts = function(text)
  local next_one = string.gmatch(text, '([^=,]+)=(%d+)')
  return function()
    local name, n = next_one()
    return name, tonumber(n)
  end
end

-- bytes_before reports whether a text is before another one by its bytes. Lua itself compares by the server's locale.
R.bytes_before = function(a, b)
  local at = 1
  while at <= #a and string.byte(a, at) == string.byte(b, at) do at = at + 1 end
  return at <= #b and (at > #a or string.byte(a, at) < string.byte(b, at))
end

-- lane returns a key's lane of a set; nil is the set of those that take nothing.
R.lane = function(s, k, set) return set and R.key(s, set .. '\2' .. k.name) or k end

R.lane_of = function(s, id)
  local _, set = R.takes(s.key_of[id])
  return R.lane(s, R.key_of(s, id), set)
end

-- lanes returns the lanes of a key that wait, or did so before, in the order of their sets.
R.lanes = function(s, k)
  local all, list = k.lanes, {}
  if not all or #all ~= #s.sets then
    local names = {}
    for i, set in ipairs(s.sets) do names[i] = set .. '\2' .. k.name end
    if names[1] then R.fetch(s, names) end
    all = {}
    for i, name in ipairs(names) do all[i] = R.key(s, name) end
    k.lanes = all
  end
  if k.n > 0 or k.seq > 0 then list[1] = k end
  for _, n in ipairs(all) do
    if n.n > 0 or n.seq > 0 then list[#list + 1] = n end
  end
  return list
end

-- move_lanes puts the lanes of a key to their places.
R.move_lanes = function(s, k)
  local list = R.lanes(s, k)
  local all = list[2] and R.held_up(s, k, list)
  k.changed = true
  for _, n in ipairs(list) do R.move(s, n, all) end
end

-- held_up reports whether a key holds up the first ticket of all its lanes, and so all of them: what is
-- given back there is for that one.
R.held_up = function(s, k, list)
  local first, first_place, at, best
  for _, n in ipairs(list or R.lanes(s, k)) do
    local id, place, leaf = nil, nil, nil
    if n.n > 0 then id, place, leaf = R.first(s, n) end
    if id and k.inner then
      local top = R.key(s, R.in_turn(s, n.name)[1])
      if not best or R.before_other(top, best) then first, at, best = id, leaf, top end
    elseif id and (not first or place < first_place or place == first_place and R.bytes_before(id, first)) then
      first, first_place, at = id, place, leaf
    end
  end
  if not first then return false end
  local weight = R.parse_id(first)
  at = at.of
  while at ~= k and weight <= R.cap_of(s, at) - at.held do at = at.up end
  return at == k and R.lacks(s, k, weight, 0)
end

-- before_other is before for lanes of different sets. Only the pools that both want count for what their keys hold.
R.before_other = function(a, b)
  local both = a.set and b.set and string.gsub(a.set, '[^,]+', function(pool)
    return not string.find(',' .. b.set .. ',', ',' .. pool .. ',', 1, true) and '' or nil
  end)
  local x, y = R.level_with(a, both), R.level_with(b, both)
  if x ~= y then return x < y end
  return a.tag < b.tag or a.tag == b.tag and a.seq < b.seq
end

-- level_with returns how many whole shares a lane's key holds with that one of some pools with which it holds the most; of
-- all without any.
R.level_with = function(k, set)
  local held
  for pool in string.gmatch(set or '', '[^,]+') do held = math.max(held or 0, k.of.with and k.of.with[pool] or 0) end
  return math.floor((held or k.of.held) * 100 / R.shares(k.of))
end

-- first_of_sets returns the first lane below the root, of the sets that are open; name is that of those that want nothing.
R.first_of_sets = function(s, name)
  local best = name and R.key(s, name)
  for _, set in ipairs(s.sets) do
    local top = R.is_open(s, set) and R.in_turn(s, set .. '\2')[1]
    local n = top and R.key(s, top)
    if n and (not best or R.before_other(n, best)) then best = n end
  end
  return best and best.name
end

-- is_open reports whether a set wants nothing of a pool that is shut.
R.is_open = function(s, set)
  for pool in string.gmatch(set, '[^,]+') do
    if s.pools[pool] and s.pools[pool].shut then return false end
  end
  return true
end

-- others_go_first reports whether another set is in turn, or a key of a leaf's path is kept for the ticket of another set.
R.others_go_first = function(s, k)
  local own = k.set
  if own and R.in_turn(s, '')[1] then return true end
  for _, set in ipairs(s.sets) do
    if set ~= own and R.in_turn(s, set .. '\2')[1] then return true end
  end
  while k do
    local list, other = R.lanes(s, k.of), false
    for _, n in ipairs(list) do other = other or n ~= k and n.n > 0 end
    if other and R.held_up(s, k.of, list) then return true end
    k = k.up
  end
  return false
end

-- reserve keeps free for a ticket what it wants, and shuts the pools that it lacks.
R.reserve = function(s, k, weight, takes)
  s.reserving = s.reserving or {leaves = {}, moved = {}}
  s.reserving.leaves[#s.reserving.leaves + 1] = k.of
  s.reserved = s.reserved + weight
  local n = k.of
  while n do
    n.reserved = n.reserved + weight
    n = n.up
  end
  for pool, amount in R.amounts(takes) do
    local p = s.pools[pool]
    p.shut = p.shut or amount > p.limit - p.used - p.reserved
    p.reserved = p.reserved + amount
  end
end

-- end_pass gives up what is reserved.
R.end_pass = function(s)
  local was = s.reserving
  if not was then return end
  s.reserving, s.reserved = nil, 0
  for _, k in ipairs(was.leaves) do
    while k do
      k.reserved = 0
      k = k.up
    end
  end
  for _, p in pairs(s.pools) do p.reserved, p.shut = 0, nil end
  for _, k in ipairs(was.moved) do R.reposition(s, k) end
end

-- fit reports whether there is as much of pools, without what is reserved.
R.fit = function(s, takes)
  for pool, n in R.amounts(takes) do
    local p = s.pools and s.pools[pool]
    if not p or n > p.limit - p.used - p.reserved then return false end
  end
  return true
end

-- left_for reports whether a weight and amounts fit what all that wait leave, and nobody of their set or path stands
-- aside. k is the leaf.
R.left_for = function(s, k, weight, takes, set)
  if weight > s.limit - s.used - s.reserved or not R.has_room(s, k, weight) or not R.fit(s, takes) then return false end
  while k do
    if R.lane(s, k, set).where == 2 or R.held_up(s, k) then return false end
    k = k.up
  end
  return true
end

-- scarce returns the first pool that is too small, counted from 1 on, and how much there is of it; 0 without such a pool.
R.scarce = function(pools, takes)
  local at = 0
  for pool, n in R.amounts(takes) do
    at = at + 1
    local p = pools and pools[pool]
    if not p or n > p.limit then return at, p and p.limit or 0 end
  end
  return 0, 0
end

-- scarce_at_first is scarce for an ask that says what pools there are.
R.scarce_at_first = function(q)
  local there, _, takes = {}, R.split(q.key)
  for pool, n in R.amounts(q.pools or '') do there[pool] = {limit = n} end
  return R.scarce(there, takes)
end

-- use changes what is in use of pools, and the weight held with some of them, by the permit of a leaf. The sign is the
-- weight's. A pool that there is nothing of is forgotten.
R.use = function(s, k, weight, takes)
  s.pools = s.pools or {}
  for pool, n in R.amounts(takes) do
    local p = s.pools[pool] or {limit = 0, used = 0, reserved = 0}
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

-- count_set changes the number of tickets of a lane's set, and of the tickets that other lanes have beside the key's own.
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
    while s.turns > 0 do
      local top = R.in_turn(s, other .. '\2')[1]
      local id = top and R.first(s, R.key(s, top))
      if not id or (R.ticket(s, id) or 0) > s.now then break end
      s.turns = s.turns - 1
      R.drop(s, id)
    end
  end
end

-- set_pools has exactly these pools from now on.
R.set_pools = function(s, there)
  if there == (s.there or '') then return end
  if s.only then R.name_keys(s) end
  s.there, s.limited, s.settled, s.pools = there, true, false, s.pools or {}
  for pool, p in pairs(s.pools) do
    p.limit = 0
    if p.used == 0 then s.pools[pool] = nil end
  end
  for pool, n in R.amounts(there) do
    s.pools[pool] = s.pools[pool] or {used = 0, reserved = 0}
    s.pools[pool].limit = n
  end
end

-- changed_pools returns the pools after a change of some, of which 0 ends one; nil if there would be too many.
R.changed_pools = function(s, some)
  local amounts, names, list = {}, {}, {}
  for pool, n in R.amounts(s.there or '') do amounts[pool] = n end
  for pool, n in R.amounts(some) do amounts[pool] = n > 0 and n or nil end
  for pool in pairs(amounts) do names[#names + 1] = pool end
  if #names > MAX_POOLS then return nil end
  table.sort(names, R.bytes_before)
  for i, pool in ipairs(names) do list[i] = pool .. '=' .. string.format('%.0f', amounts[pool]) end
  return table.concat(list, ',')
end

-- pool_over reports whether more of a pool is in use than there is.
R.pool_over = function(s)
  for _, p in pairs(s.pools) do
    if p.limit > 0 and p.used > p.limit then return true end
  end
  return false
end

-- read_pools reads what is behind KEYED, and pools_text is it. read_with reads what is behind the head of a key, and
-- with_text is it.
R.read_pools = function(s, text)
  local there, used, sets = string.match(text, '^(.-)%z(.-)%z(.*)$')
  s.there, s.pools, s.reserved = there, {}, 0
  for pool, n in R.amounts(there) do s.pools[pool] = {limit = n, used = 0, reserved = 0} end
  for pool, n in R.amounts(used) do
    s.pools[pool] = s.pools[pool] or {limit = 0, reserved = 0}
    s.pools[pool].used = n
  end
  for set, n in string.gmatch(sets, '([^=;]+)=(%d+)') do
    s.sets[#s.sets + 1], s.waiting[set] = set, tonumber(n)
  end
  table.sort(s.sets, R.bytes_before)
end

R.pools_text = function(s)
  local used, sets = {}, {}
  for pool, p in pairs(s.pools) do
    if p.used > 0 then used[#used + 1] = pool .. '=' .. string.format('%.0f', p.used) end
  end
  for set, n in pairs(s.waiting) do
    if n > 0 then sets[#sets + 1] = set .. '=' .. n end
  end
  if (s.there or '') == '' and not used[1] and not sets[1] then return '' end
  return (s.there or '') .. '\0' .. table.concat(used, ',') .. '\0' .. table.concat(sets, ';')
end

R.read_with = function(k, text)
  local others, with = string.match(text, '^(%d+) (.*)$')
  k.others, k.with = tonumber(others), {}
  for pool, weight in R.amounts(with) do k.with[pool] = weight end
end

R.with_text = function(k)
  local list = {}
  for pool, weight in pairs(k.with or {}) do
    if weight > 0 then list[#list + 1] = pool .. '=' .. string.format('%.0f', weight) end
  end
  if k.others == 0 and not list[1] then return '' end
  return '\0' .. k.others .. ' ' .. table.concat(list, ',')
end
