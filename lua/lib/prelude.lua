-- Opens the scripts that are not called once a job, with all that they may need. Rejects, before the first write,
-- whatever would fail later: Redis does not undo the writes of a failed script.
-- include lib/open
-- Asking for the size of a key is the cheapest way to check its type.
local sizes = { 'ZCARD', 'ZCARD', 'HLEN', 'ZCARD', 'HLEN', 'HLEN', 'HLEN', 'HLEN' }
-- in a partition: sizes[9], sizes[10], sizes[11] = 'ZCARD', 'HLEN', 'ZCARD'
for i, ask in ipairs(sizes) do
  local n = try(ask, KEYS[i])
  if type(n) ~= 'number' then
    if string.sub(n.err, 1, 9) ~= 'WRONGTYPE' then return n end
    local want = ask == 'HLEN' and 'hash' or 'zset'
    return redis.error_reply('WRONGTYPE ' .. KEYS[i] .. ' is a ' .. call('TYPE', KEYS[i]).ok .. ', not a ' .. want)
  end
end
local layout = call('HGET', config, 'layout')
-- include lib/layout
-- include lib/count
-- include lib/wake
-- include lib/records
-- include lib/leases

-- Whether a text is a number of at least `least`; false for nil and NaN. For checks before the first write.
local function atLeast(least, text)
  local n = tonumber(text)
  return n ~= nil and n >= least
end
local BAD = redis.error_reply('ARGUMENT an argument of the script is not a number, or too small')
