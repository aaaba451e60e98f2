-- Lists ids of one state, in the order of their times. Writes nothing.
-- ARGV   1 pending | active | dead | finished (done, and kept), 2 how many, 3 and 4 the first and the last time to list
--        ('-inf', '+inf': any), then the ids and scores of the slice before, the last one first
-- Reply  id and score of each
-- Atomic because it continues by rank, and every job that comes or goes changes ranks.
-- include lib/prelude
local finished = string.sub(pending, 1, -8) .. 'finished'
local set = ({ pending = pending, active = active, dead = dead, finished = finished })[ARGV[1]]
-- If no job of the slice before is left, continue at the time of its last job: that may repeat jobs, but misses none.
local start = call('ZCOUNT', set, '-inf', '(' .. (ARGV[6] or ARGV[3]))
for i = 5, #ARGV, 2 do
  if call('ZSCORE', set, ARGV[i]) == ARGV[i + 1] then
    start = call('ZRANK', set, ARGV[i]) + 1
    break
  end
end
local last = math.min(start + ARGV[2], call('ZCOUNT', set, '-inf', ARGV[4])) - 1
if last < start then return {} end
return call('ZRANGE', set, start, last, 'WITHSCORES')
