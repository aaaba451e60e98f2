-- Returns all counts of a queue. Writes nothing.
-- ARGV   1 how many of the next due times to list, then any number of times, ms from now
-- Reply  now; sizes of pending, active, lease, dead, payload, meta; how many jobs are due, how many leases have
--        expired; oldest due time ('': none); next due times (id, ms …); stats (name, value …); config (name, value …);
--        for each of the given times, how many jobs are due by then; number of recurring jobs, the next occurrence of
--        one ('': none), how many ids are remembered
-- Atomic because counts of different moments may not add up, and a healthy queue would look broken.
-- include lib/prelude
local dueBy = {}
for i = 2, #ARGV do dueBy[i - 1] = call('ZCOUNT', pending, '-inf', string.format('%.0f', now + ARGV[i])) end
local oldest = call('ZRANGE', pending, 0, 0, 'WITHSCORES')[2] or ''
return {
  now,
  call('ZCARD', pending), call('ZCARD', active), call('HLEN', lease),
  call('ZCARD', dead), call('HLEN', payload), call('HLEN', meta),
  call('ZCOUNT', pending, '-inf', now), call('ZCOUNT', active, '-inf', now),
  oldest,
  call('ZRANGEBYSCORE', pending, '(' .. string.format('%.0f', now), '+inf', 'WITHSCORES', 'LIMIT', 0, ARGV[1]),
  call('HGETALL', stats), call('HGETALL', config), dueBy,
  call('HLEN', every), call('ZRANGE', occurs, 0, 0, 'WITHSCORES')[2] or '',
  call('ZCOUNT', done, '(' .. string.format('%.0f', now), '+inf'),
}
