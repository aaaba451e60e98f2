-- include lib/queue

-- Removes a job that is held and done, of a queue without windows.
local function removeHeld(id)
  local gone = call('ZREM', active, id)
  call('HDEL', lease, id)
  -- try: if these keys have another type, nothing in them belongs to the job.
  try('HDEL', payload, id)
  try('HDEL', meta, id)
  if gone == 0 then return end
  try('HINCRBY', stats, 'acked', '1')
  if uses and string.find(uses, 'maxActive', 1, true) then
    -- include lib/wake
    freed(1)
  end
end
