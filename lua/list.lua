-- Lists ids of one state, those whose time comes first first; writes nothing.
-- ARGV   1 pending | active | dead, 2 how many, then the ids of the slice before and their scores, the last one first
-- Reply  id, score of each
-- Atomic because the place to go on from is found by rank, and ranks move with every job that comes or goes.
local set = ({ pending = pending, active = active, dead = dead })[ARGV[1]]
local start = 0
if #ARGV > 2 then
  -- Should all of them have gone: from the last one's time on, where some may be listed again, but none is missed.
  start = redis.call('ZCOUNT', set, '-inf', '(' .. ARGV[4])
  for i = 3, #ARGV, 2 do
    if redis.call('ZSCORE', set, ARGV[i]) == ARGV[i + 1] then
      start = redis.call('ZRANK', set, ARGV[i]) + 1
      break
    end
  end
end
return redis.call('ZRANGE', set, start, start + ARGV[2] - 1, 'WITHSCORES')
