-- Takes back expired leases; jobs that were lost too often die. Limited, so that many of them do not delay due jobs.
-- include lib/leases
-- in a partition: -- include lib/returned
lost = call('ZRANGEBYSCORE', active, '-inf', now, 'LIMIT', '0', math.min(limit, 200))
local held, records = call('HMGET', lease, unpack(lost)), call('HMGET', meta, unpack(lost))
for i, id in ipairs(lost) do
  local rec = read(records[i])
  rec.losses = counted(rec.losses, 0) + 1
  if isSpent(rec, rec.losses, rec.maxLost, maxLost) then
    bury(id, rec, 'lost') count('dead', 1)
    died[#died + 1], died[#died + 2] = id, 'lost'
  else
    call('ZADD', pending, string.format('%.17g', dueOf(held[i])), id)
    write(id, rec)
  end
end
call('ZREM', active, unpack(lost))
call('HDEL', lease, unpack(lost))
-- in a partition: returned(lost)
