-- Tells all that is known of jobs; writes nothing.
-- ARGV   1 most payload bytes (one job at least), then the ids
-- Reply  now, then for each job, as far as the bytes go: state (p | a | d, '': not there), its score ms,
--        its lease, its record, its payload (each nil: none)
-- Atomic because a job read in parts could be seen in two states, or in none.
local ids, told, bytes = {}, {}, 0
for i = 2, #ARGV do ids[#ids + 1] = ARGV[i] end
local sets = { { 'p', pending }, { 'a', active }, { 'd', dead } }
for i, id in ipairs(ids) do
  bytes = bytes + redis.call('HSTRLEN', payload, id)
  if i > 1 and bytes > tonumber(ARGV[1]) then break end
  local state, score = '', false
  for _, set in ipairs(sets) do
    local found = redis.call('ZSCORE', set[2], id)
    if found then state, score = set[1], found end
  end
  told[#told + 1], told[#told + 2], told[#told + 3] = state, score, redis.call('HGET', lease, id)
  told[#told + 1], told[#told + 2] = redis.call('HGET', meta, id), redis.call('HGET', payload, id)
end
return { now, unpack(told) }
