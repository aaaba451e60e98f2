-- Extends leases that are still held. Their receipts stay.
-- ARGV   1 lease ms from now ('': the queue's), then for each job id, receipt
-- Reply  now, a letter for each job: h held, l lost, s superseded
-- Atomic because a lease that was just taken back must not be extended.
-- include lib/prelude
if not (ARGV[1] == '' or atLeast(1, ARGV[1])) then return BAD end
local leaseMs = tonumber(ARGV[1]) or queueLease(uses and call('HGET', config, 'lease'))
local ids, letters = checkLeases(2, 2)
local held, ends = {}, {}
for i, id in ipairs(ids) do
  if letters[i] == 'h' then
    held[#held + 1] = id
    ends[#ends + 1], ends[#ends + 2] = now + leaseMs, id
  end
end
if #held > 0 then
  -- First write: it frees memory, so a full server also accepts the rest.
  call('ZREM', active, unpack(held))
  call('ZADD', active, unpack(ends))
  -- A busy drain renews instead of taking more, and counts as present.
  try('HSET', stats, 'drained', now)
  -- Samples show that nothing was done meanwhile.
  sample()
end
return { now, table.concat(letters) }
