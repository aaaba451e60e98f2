-- Takes back expired leases, then takes due jobs, oldest due first, and drops those whose time to live has passed.
-- ARGV   1 most jobs to take, 2 receipt, 3 consumer, 4 most bytes of payloads and records, 5 lease ms (none or '': the
--        queue's, 0: remove them), 6 cutoff ms (none or '': now); only in layout 2: 7 how many jobs the caller can start
--        now ('': all it takes, '-': it holds jobs that it has not begun), 8 '0': make no occurrences
-- Reply  state (more | idle | paused; limited | full: due jobs wait for the limits), now, next ms (-1: none), counts
--        expired and taken back, ids moved to dead, each with its reason, the queue's tries, lease ms, then for each job
--        id, due, counts (1: first attempt; otherwise attempt, failures and tries as text; in a list with the record, if
--        it has attributes, deliveries, ttl or created, or the lease is 0), payload; at the end, if the queue has limits,
--        texts or both: 1, 2 or 3.
--        For one plain job only: now, next ms, the queue's tries, lease ms, id, due, payload, 1 if it has texts
--        If recurring jobs are due: occurs, now, then for each of the first its id, its occurrence and its header
-- Atomic because a job must be in only one set, and no two drains may take the same job.
-- include lib/open
local limit, receipt, by, budget = tonumber(ARGV[1]), ARGV[2], ARGV[3], tonumber(ARGV[4])
local leaseMs, cutoff, stamp = tonumber(ARGV[5]), tonumber(ARGV[6]), string.format('%d', now)
if not (limit and limit >= 1 and budget and budget >= 1 and (leaseMs or 0) >= 0) then
  return redis.error_reply('ARGUMENT an argument of the script is not a number, or too small')
end
local maxLost, tries, queueTtl = 20, 5, nil
-- in a partition: local limits, onceFor, texts
if known ~= '1' or call('HLEN', config) > 0 then
  -- include parts/drain-settings
end
leaseMs = leaseMs or 60000
-- in a partition: local remembered = call('ZCARD', done)
-- in a partition: -- include parts/occurrences
-- in a partition: -- include parts/limits

local back = tonumber(call('ZRANGE', active, '0', '0', 'WITHSCORES')[2]) or math.huge
local id, second = unpack(call('ZRANGEBYSCORE', pending, '-inf', stamp, 'LIMIT', '0', '2'))
local sampled, minute = call('HGET', stats, 'sampled'), math.floor(now / 60000)
-- include parts/lateness

-- One plain job: nearly every call when jobs are spread over time, or taken one by one.
local plain = id and (limit == 1 or not second) and leaseMs > 0 and not cutoff and not queueTtl and back > now
-- in a partition: plain = plain and not most
local body = plain and string.find(id, '^[\1-\127]+$') and call('HGET', payload, id)
if body and not call('HGET', meta, id) then
  call('HLEN', lease) call('ZCARD', dead) -- Only for their types: a job that could not be settled must not be taken.
  local due = call('ZSCORE', pending, id)
  local late = now - due
  -- include parts/drained
  call('ZADD', active, string.format('%d', now + leaseMs), id)
  call('HSET', lease, id, receipt .. ' ' .. due .. ' ' .. stamp .. ' ' .. by)
  call('ZREMRANGEBYRANK', pending, '0', '0') -- Last, so whatever fails, no job is lost.
  try('HINCRBY', stats, 'delivered', '1')
  try('HINCRBY', stats, bucket(late), '1')
  if late >= 1 and late <= 1e15 then try('HINCRBY', stats, 'late:sum', string.format('%d', late)) end
  -- in a partition: -- include parts/sweep
  local soonest = second and now or tonumber(call('ZRANGE', pending, '0', '0', 'WITHSCORES')[2]) or math.huge
  -- in a partition: if second then soonest = tonumber(call('ZSCORE', pending, second)) end
  -- in a partition: soonest = math.min(soonest, occurred)
  return { now, math.ceil(math.min(soonest, back, now + leaseMs)), tries, leaseMs, id, due, body
    -- in a partition: , texts
  }
end
-- include parts/drain-batch
