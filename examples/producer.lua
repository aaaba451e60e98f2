-- What a producer without delayq may do with a job by its id: docs/reference/keys.md. For producer.php and producer.py.
-- KEYS   config, payload, pending, active, dead, meta and done of the partition of the id
-- ARGV   1 the layout that the caller believes ('': any, for a new id, in partition 0), 2 enqueue or keep (the same),
--        replace or cancel, 3 id, 4 the delay, ms, 5 the payload
-- Reply  created, kept, replaced or cancelled; missing; or active, dead or done (remembered), and nothing was written.
--        A list, if the queue has another layout: that, and the tags of its partitions
-- Atomic because a drain may take the job at any time, and what is active belongs to a consumer.
local call, config, payload, pending, active, dead, meta, done = redis.call, unpack(KEYS)
local known, act, id, delay, body = unpack(ARGV)
-- What the queue uses does not matter here.
local layout = string.match((call('HGET', config, 'layout') or '1 0/1') .. ' uses ', '^(.-) uses ')
if known ~= '' and known ~= layout then return { layout, call('HGET', config, 'partitions') or '' } end
local clock = call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
-- Whatever may fail, such as a key of another type, fails here: Redis would not undo a write.
local due = string.format('%.0f', now + delay)
local isJob = call('ZSCORE', pending, id) and call('HEXISTS', payload, id) == 1
local ends = tonumber(call('ZSCORE', done, id)) or 0
call('HLEN', payload) call('HLEN', meta)

if call('ZSCORE', active, id) then return 'active' end
if call('ZSCORE', dead, id) then return 'dead' end
if act == 'cancel' then
  if not isJob then return 'missing' end
  call('ZREM', pending, id) call('HDEL', payload, id) call('HDEL', meta, id) call('ZREM', done, id)
  return 'cancelled'
end
if isJob and act ~= 'replace' then return 'kept' end
if not isJob and ends > now then return 'done' end
call('HSET', payload, id, body)
call('HDEL', meta, id) -- What it counted, and its limits, were those of the job before.
call('ZADD', pending, due, id)
return isJob and 'replaced' or 'created'
