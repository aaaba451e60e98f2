-- Removes finished jobs.
-- ARGV   for each job id, receipt
-- Reply  now, a letter for each job: h held, so it was removed, l lost, s superseded
-- Atomic because only the holder of the current lease may remove a job, and it could change between check and removal.
local ids, letters = checkLeases(1, 2)
local done, superseded = {}, {}
for i, id in ipairs(ids) do
  if letters[i] == 'h' then done[#done + 1] = id end
  if letters[i] == 's' then superseded[#superseded + 1] = ARGV[2 * i] .. ' ' .. id end
end
if #done > 0 then
  local gone = redis.call('ZREM', active, unpack(done))
  sample()
  count('acked', gone)
  redis.call('HDEL', lease, unpack(done))
  drop(done)
end
-- The holder knows now, and nobody else will ask.
if #superseded > 0 then redis.call('HDEL', lease, unpack(superseded)) end
return { now, table.concat(letters) }
