-- The first part of each call: it reads the state and the entries of the call's
-- ids. A late call ends here.

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local caller, call = ARGV[1], ARGV[2]
local number, marks, ids, keep_for, start = struct.unpack(CALL, call)

-- One command reads all entries of a batch, up to the number that unpack can
-- take. Further ones are read when they are needed.
local raw, got
if ids > 1 then
  got = redis.pcall('HMGET', KEYS[1], '', unpack(ARGV, 3, 2 + math.min(ids, 2000)))
  if got.err then return got end
  raw = got[1]
else
  raw = redis.pcall('HGET', KEYS[1], '')
  if raw and type(raw) ~= 'string' then return raw end
end
local _, limit, used, token, keep, first, fenced, alarm, queued, keepers, keeps, flags, watcher, behind = nil, 0, 0, 0, 0, math.huge, 0, 0, 0, 0, 0, 0, '', 0
if raw then
  if string.sub(raw, 1, 4) ~= MARK then
    return redis.error_reply(string.format(string.find(raw, '^sem%d') and OTHER_VERSION or NOT_OURS, KEYS[1], raw, redis.call('HGET', KEYS[1], 'release') or '?'))
  end
  _, limit, used, token, keep, first, fenced, alarm, queued, keepers, keeps, flags, watcher, behind = struct.unpack(STATE, raw)
end

-- A call is late if its client has fenced it off. fenced is the end of the last
-- fence of any client: after it no fence has to be read.
local fence = marks % 2 == 1
if fence or fenced > now or not raw then
  local found = redis.pcall('HGET', KEYS[5], caller)
  if found and found.err then return found end
  local least, ends = 0, 0
  if found then least, ends = struct.unpack(FENCE, found) end
  if now < ends and number < least then return struct.pack(HEAD, limit, 0, 0) end
end
