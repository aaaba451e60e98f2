-- The settings of the queue, for drain.lua.
-- include lib/records
local settings = call('HMGET', config, 'layout', 'paused', 'maxLost', 'ttl', 'tries', 'lease'
-- in a partition: , 'rate', 'burst', 'maxActive', 'onceFor', 'text'
)
-- in a partition: if settings[7] or settings[9] then limits = { settings[7], settings[8], settings[9] } end
-- in a partition: onceFor, texts = settings[10], settings[11] == '1' and 1 or nil
local layout, pausedUntil = settings[1], tonumber(settings[2])
-- include lib/layout
maxLost, queueTtl, tries = counted(settings[3], maxLost), counted(settings[4]), counted(settings[5], tries)
leaseMs = leaseMs or queueLease(settings[6])
if pausedUntil and pausedUntil > now then
  if by ~= '' then try('HSET', stats, 'drained', stamp) end -- The queue has a drain, even if it gets nothing.
  return { 'paused', now, pausedUntil < math.huge and pausedUntil or -1, 0, 0, {}, tries, leaseMs }
end
