-- Puts jobs into pending.
-- ARGV   'keep', then one job: id, payload, time ('+ms' from now | ms since 1970), perhaps a record (JSON with tries,
--        maxLost, deliveries, ttl, once, created and attributes as a:NAME)
--        or 'keep N T R' or 'replace N T R' or (only in a partition) 'active N T R', which replaces active jobs and
--        leaves all others, or (only there) 'back N T R', which keeps jobs but ignores windows, then N ids, N payloads,
--        T times, R records ('': none). Times and records repeat if there are fewer than jobs
-- Reply  now, a letter for each job (c created, r replaced, k kept, d kept-dead, e kept-done, m not active), 1 if
--        anything was written, 2 if the queue may be new: the caller then lists it, because the list of queues is in
--        another slot. Now alone, not in a list: one job was created (c, 1)
-- Atomic because due time and payload must appear together, and an id must be in only one set.
-- The first write grows memory on purpose: so a full server rejects the whole call.
-- include lib/open
local layout = call('HGET', config, 'layout')
-- include lib/layout
-- in a partition: local remembered = call('ZCARD', done)
local sampled, minute = call('HGET', stats, 'sampled'), math.floor(now / 60000)

-- One job whose id is new: nearly every call of a program that enqueues one at a time.
if ARGV[1] == 'keep' then
  local id, body, when, record = unpack(ARGV, 2)
  local isNew = call('HEXISTS', payload, id) == 0 and not call('ZSCORE', active, id) and not call('ZSCORE', dead, id)
  -- in a partition: isNew = isNew and (remembered == 0 or (tonumber(call('ZSCORE', done, id)) or 0) <= now)
  if isNew then
    local due = tonumber(when) + (string.sub(when, 1, 1) == '+' and now or 0)
    if record then call('HLEN', meta) end -- Only for its type.
    -- If it is already pending, it is an orphan, whose record must not be taken for that of this job.
    if call('ZADD', pending, string.format('%d', due), id) == 0 then try('HDEL', meta, id) end
    call('HSET', payload, id, body)
    if record then call('HSET', meta, id, record) end
    if tonumber(sampled) ~= minute then
      -- include lib/sample
    end
    -- in a partition: -- include parts/sweep
    local begun = try('HINCRBY', stats, 'enqueued', '1') == 1
    if due <= now + pollMs then
      -- include lib/wake
      wake(due)
    end
    return begun and { now, 'c', 2 } or now
  end
end
-- include parts/enqueue-batch
