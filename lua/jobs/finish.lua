-- Removes jobs without their receipts, whatever their states: those that some consumers hold are done, others cancelled.
-- ARGV   1 how the names of those consumers begin ('': none), 2 'any' | 'active' (leaves all other jobs), then the ids
-- Reply  a letter for each job: a acked, c cancelled, m missing
-- Atomic because a job must be removed completely, and it may change hands between a look and the removal.
-- include lib/open
local layout, onceFor, maxActive = call('HGET', config, 'layout'), nil, nil
-- in a partition: layout, onceFor, maxActive = unpack(call('HMGET', config, 'layout', 'onceFor', 'maxActive'))
-- include lib/layout
-- in a partition: local remembered = call('ZCARD', done)
-- include lib/leases
-- include lib/gone
return table.concat(finish({ unpack(ARGV, 3) }, ARGV[1], ARGV[2] == 'any'))
