-- Makes the calls of ARGV. Returns the calls that failed, each followed by its error.
-- KEYS: the keys that the calls write. ARGV[1] deletes them: without the right to do so,
-- nothing is written.
local failed = {}
for i, line in ipairs(ARGV) do
  local words = {}
  for word in string.gmatch(line, '%S+') do words[#words + 1] = word end
  local answer = redis.pcall(unpack(words))
  if type(answer) == 'table' and answer.err then
    failed[#failed + 1] = line
    failed[#failed + 1] = answer.err
    if i == 1 then return failed end
  end
end
redis.pcall('DEL', unpack(KEYS))
return failed
