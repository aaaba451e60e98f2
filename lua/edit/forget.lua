-- Removes the counters, settings, remembered ids, events and results of a queue without jobs. Keeps the fields of
-- superseded leases: without them, drain would take such a lease for lost, and kill its handler. Each holder removes
-- its field when it asks. Keeps the layout of partitions: others would go on with it.
-- ARGV   none
-- Reply  1 if the queue was removed, 0 if it has jobs and nothing was done
-- Atomic because a job that is enqueued just now must not lose its payload.
-- include lib/prelude
-- include lib/uses
if call('EXISTS', pending, active, dead) > 0 then return { 0 } end
local partitions = call('HGET', config, 'partitions')
call('UNLINK', payload, meta, stats, config, done)
for _, name in ipairs({ 'events', 'finished', 'results' }) do
  try('UNLINK', string.sub(pending, 1, -8) .. name)
end
if partitions then call('HSET', config, 'partitions', partitions) end
noteUses()
return { 1 }
