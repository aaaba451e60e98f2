-- Returns what is kept of jobs that are done. Writes nothing.
-- ARGV   ids
-- Reply  now, 1 if the queue keeps them, how long it does, ms, then for each id: state of its job (p | a | d, '': there
--        is none), when an earlier one was done, ms (nil: it is not known), its record; of a dead job that of meta
-- Atomic because a job that ends between two looks would be in none.
-- include lib/prelude
local finished = string.sub(pending, 1, -8) .. 'finished'
local results = string.sub(pending, 1, -8) .. 'results'
local isOn = uses and string.find(uses, 'results', 1, true)
local reply = { now, isOn and 1 or 0, isOn and call('HGET', config, 'keepDone') or '0' }
for _, id in ipairs(ARGV) do
  local state = call('ZSCORE', pending, id) and 'p' or call('ZSCORE', active, id) and 'a'
    or call('ZSCORE', dead, id) and 'd' or ''
  local n = #reply
  reply[n + 1], reply[n + 2], reply[n + 3] = state, call('ZSCORE', finished, id), call('HGET', results, id)
  reply[n + 4] = state == 'd' and call('HGET', meta, id)
end
return reply
