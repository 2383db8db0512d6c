-- The rules for rates, which are pools that come back with time: see internal/ledger/rates.go. They are functions of R,
-- made with those of pools.lua.
--
--   s.rated     some pools are rates
--   s.spent     what permits have taken of them, see spend

R.unit, R.sum = unit, sum -- of units.lua

-- rates iterates over names, amounts, and what makes each a rate: "/1m", "+200000/1m" or ''.
R.rates = function(text)
  local next_one = string.gmatch(text, '([^=,]+)=(%d+)([^,]*)')
  return function()
    local name, n, rate = next_one()
    return name, tonumber(n), rate
  end
end

-- out returns how much of a rate has not come back yet.
R.out = function(s, p)
  return math.ceil(math.max(0, p.full - s.now) / p.unit)
end

-- resumes returns when rates come back again: now, or at the end of a cooldown.
R.resumes = function(s) return math.max(s.now, s.cooldown or 0) end

-- set_rate makes a pool a rate of which one takes unit to come back; nil: it is no rate. What has not come back yet stays
-- as many units as it was. What permits have taken until now is not given back, also if the pool becomes a rate again.
R.set_rate = function(s, p, unit)
  if p.full > 0 and p.unit ~= unit then
    local resumes, left = R.resumes(s), 0
    p.given = math.max(p.given, p.full + p.given - resumes)
    if p.unit then left = math.max(0, p.full - resumes) / p.unit * (unit or 0) end
    p.full = resumes + math.min(left, CENTURY)
  end
  p.unit, s.rated = unit, s.rated or unit ~= nil
end

-- lacks reports whether time alone brings all that a demand lacks, and when the first rate that it lacks will be back: from then on
-- those behind it may go on that want this rate, though the demand itself still lacks another.
R.lacks = function(s, weight, takes)
  local timed, due = weight <= R.limits(s) - s.used - s.reserved, math.huge
  for _, pool, n in R.amounts(takes) do
    local p = s.pools[pool]
    if n > R.free(s, p) and p.unit and n > p.limit - p.reserved then
      -- those ahead keep it, and have to be served first
    elseif n > R.free(s, p) and p.unit then
      due = math.min(due, math.ceil(p.full - (p.limit - p.reserved - n) * p.unit))
    elseif n > R.free(s, p) then
      timed = false
    end
  end
  return timed, due
end

-- spend takes what a permit is granted of rates. It notes of each pool until when that counts as the permit's own, see settle.
R.spend = function(s, id, takes)
  local spent, rates = {}, false
  for _, pool, n in R.amounts(takes) do
    local p = s.pools[pool]
    if p.unit then
      p.full, rates = R.sum(R.resumes(s), p.full, n * p.unit), true
      R.remember(s, math.floor(p.full) - s.now)
    end
    spent[#spent + 1] = string.format('%.17g', p.unit and p.full + p.given or 0)
  end
  s.spent[id] = rates and table.concat(spent, ' ') or nil
end

-- delay lets nothing of rates come back for as long as that; below 0, it takes back that much of an earlier delay. What permits have
-- taken counts as their own for as much longer.
R.delay = function(s, lasts)
  for _, p in pairs(s.pools or {}) do
    if p.unit or p.full > 0 then
      p.full, p.given = math.max(p.full, s.now) + lasts, p.given - lasts
    end
  end
  R.remember_rates(s)
end

-- remember_rates keeps the semaphore's keys until all of the rates is back.
R.remember_rates = function(s)
  local last = s.now
  for _, p in pairs(s.pools or {}) do
    if p.unit then last = math.max(last, p.full) end
  end
  if last > s.now then R.remember(s, math.floor(last) - s.now) end
end

-- settle_rates counts the use of rates in place of the amounts that a permit has taken. More than was taken is a debt. Less comes back at once,
-- without the part that time has brought back already, and without the part that other permits have given back.
R.settle_rates = function(s, id, used)
  local next_spent, told = string.gmatch(s.spent[id] or '', '%S+'), {}
  for _, pool, n in R.amounts(used) do told[pool] = n end
  for _, pool, n in R.amounts((R.takes(s.key_of[id]))) do
    local p, own = s.pools[pool], tonumber(next_spent() or 0)
    if told[pool] and p.unit and own > 0 then
      local more = (told[pool] - n) * p.unit
      if more < 0 then
        more = -math.max(0, math.min(-more, own - p.given - R.resumes(s)))
        p.given = p.given - more
      end
      p.full = R.sum(R.resumes(s), p.full, more)
      R.remember(s, math.floor(p.full) - s.now)
    end
  end
end
