-- Removes finished jobs.
-- ARGV   for each job id, receipt
-- Reply  a letter for each job: h held, so it was removed, l lost, s superseded
-- Atomic because only the holder of the current lease may remove a job, and it could change between check and removal.
-- include lib/keys
local layout, onceFor, maxActive = known == '1' and call('HGET', config, 'layout'), nil, nil
-- in a partition: layout, onceFor, maxActive = unpack(call('HMGET', config, 'layout', 'onceFor', 'maxActive'))
-- include lib/layout
-- in a partition: local remembered = call('ZCARD', done)

-- One job that is held: nearly every call of a worker that handles one at a time.
local id, receipt = ARGV[1], ARGV[2] .. ' '
local held = #ARGV == 2 and call('HGET', lease, id)
if held and string.find(held, receipt, 1, true) == 1 then
  -- in a partition: local ended, records = { id }, try('HMGET', meta, id)
  local gone = call('ZREM', active, id)
  call('HDEL', lease, id)
  -- try: if these keys have another type, nothing in them belongs to the job.
  try('HDEL', payload, id)
  -- in a partition: if records[1] then
  try('HDEL', meta, id)
  -- in a partition: end
  if gone == 1 then try('HINCRBY', stats, 'acked', '1') end
  -- in a partition: -- include parts/ended
  return 'h'
end

-- include lib/leases
local ids, letters = checkLeases(1, 2)
local ended, superseded = {}, {}
for i, id in ipairs(ids) do
  if letters[i] == 'h' then ended[#ended + 1] = id end
  if letters[i] == 's' then superseded[#superseded + 1] = ARGV[2 * i] .. ' ' .. id end
end
if #ended > 0 then
  -- in a partition: local records = try('HMGET', meta, unpack(ended))
  local gone = call('ZREM', active, unpack(ended))
  call('HDEL', lease, unpack(ended))
  try('HDEL', payload, unpack(ended))
  if try('HLEN', meta) ~= 0 then try('HDEL', meta, unpack(ended)) end
  if gone > 0 then try('HINCRBY', stats, 'acked', gone) end
  -- in a partition: -- include parts/ended
end
-- The holder knows now, and nobody else will ask.
if #superseded > 0 then call('HDEL', lease, unpack(superseded)) end
return table.concat(letters)
