-- Put in front of every script.
--
-- KEYS[1]      counter: STRING, how many permits are available now
-- KEYS[2]      channel that waiters listen on
-- KEYS[3]      expirable semaphore only: ZSET of held permits, score = end of lease in epoch ms
-- KEYS[#KEYS]  receipts: HASH lane -> "number answer..."; only when ARGV[2] is not ''
-- ARGV[1]      command that publishes: 'publish' or 'spublish'
-- ARGV[2]      lane of the receipts this request may use, or '' for none
-- ARGV[3]      number of this request in its lane; only grows
-- ARGV[4]      'first', or 'again' when an earlier copy of the request may have been executed
-- ARGV[5...]   the script's own
-- Returns an array of integers; an empty one when a later request has used the lane.
local K, C = KEYS[1], KEYS[2]
local R = ARGV[2] ~= '' and KEYS[#KEYS]
local MAX, MIN = 2147483647, -2147483648 -- Redisson reads the counter into a Java int
local EXACT = 9007199254740992           -- 2^53: Lua counts exactly up to here
local KEEP = 600000                      -- ms a receipt lives after its handle's last change

-- earlier is what an earlier copy of this request answered; {} when a later
-- request has used the lane, because nobody waits for this copy any more; nil
-- when there was no earlier copy.
local function earlier_answer()
  local receipt = R and redis.call('HGET', R, ARGV[2])
  if not receipt then return nil end
  local numbers = {}
  for word in string.gmatch(receipt, '%S+') do numbers[#numbers + 1] = tonumber(word) end
  local number = table.remove(numbers, 1)
  if number == tonumber(ARGV[3]) then return numbers end
  if number > tonumber(ARGV[3]) then return {} end
end
local earlier = earlier_answer()

-- answer returns its numbers and keeps them as a receipt. An answer that
-- changed nothing needs a receipt only if other copies of the request may follow.
local function answer(changed, ...)
  local numbers = {...}
  if R and (changed or ARGV[4] == 'again') then
    redis.call('HSET', R, ARGV[2], ARGV[3] .. ' ' .. table.concat(numbers, ' '))
    redis.call('PEXPIRE', R, KEEP)
  end
  return numbers
end

-- value reads the counter; nil when there is none. It accepts only what INCRBY
-- accepts: digits without a leading zero, sign or space ("3", not "03", "3e0" or
-- " 3"). Each script calls it before its first write, so that a key of another
-- kind leaves everything as it was.
local function value()
  local text = redis.call('GET', K)
  if not text then return nil end
  local n = tonumber(text)
  if not n or not (n >= -EXACT and n <= EXACT) or string.format('%d', n) ~= text then
    error('redisson: counter is not an integer')
  end
  return n
end

-- publish wakes waiters. Redisson takes the number as how many of its threads
-- to wake, so it is never below 1.
local function publish(v)
  redis.call(ARGV[1], C, string.format('%d', math.max(1, math.min(v, MAX))))
end

-- credit adds n > 0 permits to a counter that exists, and wakes waiters. It uses
-- INCRBY and not SET, because SET drops the counter's time to live.
local function credit(n)
  local v = redis.call('INCRBY', K, n)
  publish(v)
  return v
end

-- allow_without_memory makes the rest of the script work on a server that is out
-- of memory, because a permit must be returnable then. Redis refuses a script for
-- lack of memory only at its first write, and never refuses HDEL. There is no key
-- with the channel's name; if another program has made one, it stays.
local function allow_without_memory() redis.pcall('HDEL', C, '') end
