-- Recurring jobs that are due: the caller makes their jobs before it takes (docs/internals/recurring.md).
local occurred = tonumber(call('ZRANGE', occurs, '0', '0', 'WITHSCORES')[2]) or math.huge
local upTo = math.min(now, cutoff or now)
if occurred <= upTo and ARGV[8] ~= '0' then
  local first = call('ZRANGEBYSCORE', occurs, '-inf', string.format('%.0f', upTo), 'WITHSCORES', 'LIMIT', '0', '100')
  local told = {}
  for i = 1, #first, 2 do
    local header = string.match(call('HGET', every, first[i]) or '', '^[^\n]*\n([^\n]*)') or ''
    told[#told + 1], told[#told + 2], told[#told + 3] = first[i], first[i + 1], header
  end
  return { 'occurs', now, unpack(told) }
end
-- The caller could not make them: it need not ask again at once.
if occurred <= upTo then occurred = now + pollMs end
