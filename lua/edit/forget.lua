-- Removes the counters, settings and remembered ids of a queue without jobs. Keeps the fields of superseded leases:
-- without them, drain would take such a lease for lost, and kill its handler. Each holder removes its field when it asks.
-- Keeps the layout of partitions: others would go on with it.
-- ARGV   none
-- Reply  1 if the queue was removed, 0 if it has jobs and nothing was done
-- Atomic because a job that is enqueued just now must not lose its payload.
-- include lib/prelude
if call('EXISTS', pending, active, dead) > 0 then return { 0 } end
local kept = call('HMGET', config, 'layout', 'partitions')
-- With only one partition, a caller that still believes in it writes it again.
-- in a partition: if known == '2 0/1' and call('EXISTS', every) == 0 then kept[2] = false end
call('UNLINK', payload, meta, stats, config)
-- in a partition: call('UNLINK', done)
if kept[2] then call('HSET', config, 'layout', kept[1], 'partitions', kept[2]) end
return { 1 }
