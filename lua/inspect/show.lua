-- Returns everything stored about jobs. Writes nothing.
-- ARGV   1 most payload bytes (one job at least), then the ids
-- Reply  now, then for each job, until the bytes are used up: state (p | a | d, '': no such job), score ms ('': until
--        when its id is remembered), lease, record, payload (each nil: none)
-- Atomic because a job that is read in parts could appear in two states, or in none.
-- include lib/prelude
local ids, reply, bytes = { unpack(ARGV, 2) }, { now }, 0
local sets = { { 'p', pending }, { 'a', active }, { 'd', dead } }
for i, id in ipairs(ids) do
  bytes = bytes + call('HSTRLEN', payload, id)
  if i > 1 and bytes > tonumber(ARGV[1]) then break end
  local state, score = '', call('ZSCORE', done, id)
  for _, set in ipairs(sets) do
    local found = call('ZSCORE', set[2], id)
    if found then state, score = set[1], found end
  end
  reply[#reply + 1], reply[#reply + 2], reply[#reply + 3] = state, score, call('HGET', lease, id)
  reply[#reply + 1], reply[#reply + 2] = call('HGET', meta, id), call('HGET', payload, id)
end
return reply
