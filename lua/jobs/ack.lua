-- Removes jobs that are done.
-- ARGV   for each job id, receipt
-- Reply  now, a letter for each job: h it was held and is gone, l lost, s superseded
-- Atomic because only the holder of the current lease may remove a job: between looking and removing it could change.
local ids, letters = answers(1, 2)
local done, told = {}, {}
for i, id in ipairs(ids) do
  if letters[i] == 'h' then done[#done + 1] = id end
  if letters[i] == 's' then told[#told + 1] = ARGV[2 * i] .. ' ' .. id end
end
if #done > 0 then
  local gone = redis.call('ZREM', active, unpack(done))
  sample()
  count('acked', gone)
  redis.call('HDEL', lease, unpack(done))
  drop(done)
end
-- Whoever asked knows now; nobody else will ask.
if #told > 0 then redis.call('HDEL', lease, unpack(told)) end
return { now, table.concat(letters) }
