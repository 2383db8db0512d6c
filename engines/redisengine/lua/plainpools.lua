-- The fast path for permits that take some of pools: what plain.lua does with their records. The functions are made
-- for such a permit alone, because making functions costs.

-- change returns KEYED after a permit has taken its amounts of pools, or given them back (sign is -1). It returns nil if a pool has too little,
-- or the semaphore would have to be kept for longer. See take, spend and use_pools of rules.lua, rates.lua and pools.lua.
local function change(keyed, takes, sign, keep)
  local there, used, sets, rates = string.match(keyed, '^([^%z]*)%z([^%z]*)%z([^%z]*)%z?(.*)$', KEYED_SIZE + 1)
  if not there or sets ~= '' then return nil end
  local amounts, uses, names, full, given, spent, rated = {}, {}, {}, {}, {}, {}, false
  for pool, n in string.gmatch(used, '([^=,]+)=(%d+)') do uses[pool], names[#names + 1] = tonumber(n), pool end
  if sign > 0 then
    for pool, n, rate in string.gmatch(there, '([^=,]+)=(%d+)([^,]*)') do amounts[pool] = {tonumber(n), rate} end
    for pool, at, more in string.gmatch(rates, '([^=,]+)=(%S+) ([^,]+)') do full[pool], given[pool] = tonumber(at), tonumber(more) end
  end
  for pool, n in string.gmatch(takes, '([^=,]+)=(%d+)') do
    local amount = amounts[pool]
    n = tonumber(n)
    if sign < 0 and rates ~= '' and not string.find(',' .. there, ',' .. pool .. '=', 1, true) then return nil end -- it ended: the rules forget it
    if sign > 0 then
      local one = amount and unit(amount[1], amount[2])
      local is = one and math.max(full[pool] or 0, now)
      if not amount or n > amount[1] - (one and math.ceil((is - now) / one) or uses[pool] or 0) then return nil end
      if one then
        full[pool], given[pool], rated = sum(now, is, n * one), given[pool] or 0, true
        if keep < math.floor(full[pool]) + IDLE then return nil end
      end
      spent[#spent + 1] = string.format('%.17g', one and full[pool] + given[pool] or 0)
    end
    if not uses[pool] then names[#names + 1] = pool end
    uses[pool] = (uses[pool] or 0) + sign * n
  end
  local used_list, rate_list = {}, {rates ~= '' and rates or nil}
  for _, pool in ipairs(names) do
    if uses[pool] > 0 then used_list[#used_list + 1] = pool .. '=' .. string.format('%.0f', uses[pool]) end
  end
  if rated then
    rate_list = {}
    for pool, at in pairs(full) do rate_list[#rate_list + 1] = string.format('%s=%.17g %.17g', pool, at, given[pool]) end
  end
  return {keyed = string.sub(keyed, 1, KEYED_SIZE) .. pools_of(there, used_list, {}, rate_list), spent = rated and '\3' .. table.concat(spent, ' ') or ''}
end

-- with returns the record of a key with more weight that is held with pools, see use_pools and with_text.
local function with(record, takes, weight)
  local held, names, list = {}, {}, {}
  for pool, n in string.gmatch(string.match(record, '^%z%d+ (.*)$', KEY_SIZE + 1) or '', '([^=,]+)=(%d+)') do
    held[pool], names[#names + 1] = tonumber(n), pool
  end
  for pool in string.gmatch(takes, '([^=,]+)=%d+') do
    if not held[pool] then names[#names + 1] = pool end
    held[pool] = (held[pool] or 0) + weight
  end
  for _, pool in ipairs(names) do
    if held[pool] > 0 then list[#list + 1] = pool .. '=' .. string.format('%.0f', held[pool]) end
  end
  return string.sub(record, 1, KEY_SIZE) .. (list[1] and '\0' .. '0 ' .. table.concat(list, ',') or '')
end

return change, with
