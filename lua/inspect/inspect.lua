-- Returns all counts of a queue. Writes nothing.
-- ARGV   1 how many of the next due times to list, then any number of times, ms from now
-- Reply  now; sizes of pending, active, lease, dead, payload, meta; how many jobs are due, how many leases have
--        expired; oldest due time ('': none); next due times (id, ms …); stats (name, value …); config (name, value …);
--        for each of the given times, how many jobs are due by then
-- Atomic because counts of different moments may not add up, and a healthy queue would look broken.
local dueBy = {}
for i = 2, #ARGV do dueBy[i - 1] = redis.call('ZCOUNT', pending, '-inf', string.format('%.0f', now + ARGV[i])) end
local oldest = redis.call('ZRANGE', pending, 0, 0, 'WITHSCORES')[2] or ''
return {
  now,
  redis.call('ZCARD', pending), redis.call('ZCARD', active), redis.call('HLEN', lease),
  redis.call('ZCARD', dead), redis.call('HLEN', payload), redis.call('HLEN', meta),
  redis.call('ZCOUNT', pending, '-inf', now), redis.call('ZCOUNT', active, '-inf', now),
  oldest,
  redis.call('ZRANGEBYSCORE', pending, '(' .. string.format('%.0f', now), '+inf', 'WITHSCORES', 'LIMIT', 0, ARGV[1]),
  redis.call('HGETALL', stats), redis.call('HGETALL', config), dueBy,
}
