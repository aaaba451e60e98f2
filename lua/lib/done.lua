-- include lib/queue

-- Removes a job that is held and done, of a queue without windows that keeps no results. `held`: its lease.
local function removeHeld(id, held)
  local hasEvents = uses and string.find(uses, 'events', 1, true)
  local record = hasEvents and try('HGET', meta, id)
  local gone = call('ZREM', active, id)
  call('HDEL', lease, id)
  -- try: if these keys have another type, nothing in them belongs to the job.
  try('HDEL', payload, id)
  try('HDEL', meta, id)
  if gone == 0 then return end
  try('HINCRBY', stats, 'acked', '1')
  if hasEvents then
    -- include lib/events
    tell('acked', id, holderIn(held), attemptOf(record))
  end
  if uses and string.find(uses, 'maxActive', 1, true) then
    -- include lib/wake
    freed(1)
  end
end
