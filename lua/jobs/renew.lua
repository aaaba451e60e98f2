-- Extends leases that are still held; the receipts stay.
-- ARGV   1 lease ms from now ('': the queue's), then for each job id, receipt
-- Reply  now, a letter for each job: h held, l lost, s superseded
-- Atomic because a lease that was taken back meanwhile must not come to life again.
if not (ARGV[1] == '' or atLeast(1, ARGV[1])) then return BAD end
local leaseMs = tonumber(ARGV[1]) or queueLease(redis.call('HGET', config, 'lease'))
local ids, letters = answers(2, 2)
local held, ends = {}, {}
for i, id in ipairs(ids) do
  if letters[i] == 'h' then
    held[#held + 1] = id
    ends[#ends + 1], ends[#ends + 2] = now + leaseMs, id
  end
end
if #held > 0 then
  -- The first write frees memory: after it a full server lets the rest through.
  redis.call('ZREM', active, unpack(held))
  redis.call('ZADD', active, unpack(ends))
  -- Whoever is busy with what was taken has no reason to ask for more, and is not away.
  redis.pcall('HSET', stats, 'drained', now)
end
return { now, table.concat(letters) }
