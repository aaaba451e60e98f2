-- Lists ids of one state, those whose time comes first first; writes nothing.
-- ARGV   1 pending | active | dead, 2 how many, 3 and 4 the first and the last time to list ('-inf', '+inf': any),
--        then the ids of the slice before and their scores, the last one first
-- Reply  id, score of each
-- Atomic because the place to go on from is found by rank, and ranks move with every job that comes or goes.
local set = ({ pending = pending, active = active, dead = dead })[ARGV[1]]
-- Should all of the slice before have gone: from the last one's time on, where some may be listed again, but none is missed.
local start = redis.call('ZCOUNT', set, '-inf', '(' .. (ARGV[6] or ARGV[3]))
for i = 5, #ARGV, 2 do
  if redis.call('ZSCORE', set, ARGV[i]) == ARGV[i + 1] then
    start = redis.call('ZRANK', set, ARGV[i]) + 1
    break
  end
end
local last = math.min(start + ARGV[2], redis.call('ZCOUNT', set, '-inf', ARGV[4])) - 1
if last < start then return {} end
return redis.call('ZRANGE', set, start, last, 'WITHSCORES')
