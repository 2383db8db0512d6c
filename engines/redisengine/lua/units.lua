-- What both the rules and plainpools.lua need of pools and rates. Each of the two has these functions of its own, because the
-- rules are not made for a call on the fast path.

-- unit returns how long one of a rate takes to come back; nil if it is none.
local function unit(n, rate)
  local back, per, name = string.match(rate, '^%+?(%d*)/(%d+)(%a+)$')
  if not per then return nil end
  return per * (name == 'ms' and 1000 or name == 's' and 1000000 or name == 'm' and 60000000 or 3600000000) / (tonumber(back) or n)
end

-- sum returns when all is back after more was taken. It rounds up: a number holds quarters of microseconds since 1970, and each permit
-- would give away what is rounded down. resumes is now, or the end of a cooldown.
local function sum(resumes, full, more)
  full = math.max(full, resumes)
  local is = full + more
  return math.min(is - full < more and is + 0.5 or is, resumes + CENTURY)
end

-- pools_of returns what follows KEYED, from lists; '' if there is nothing.
local function pools_of(there, used, sets, rates)
  if there == '' and not used[1] and not sets[1] then return '' end
  return there .. '\0' .. table.concat(used, ',') .. '\0' .. table.concat(sets, ';') .. (rates[1] and '\0' .. table.concat(rates, ',') or '')
end

