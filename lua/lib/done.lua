-- include lib/queue
-- include lib/now
-- Counts jobs that are held and done.

-- Counts jobs by how long their handlers took, from their leases: the field took:k is for less than 2^k ms, and at
-- least half of that.
local function countDurations(leases)
  local counts = {}
  for _, held in ipairs(leases) do
    local since = tonumber(string.match(held, '^%S+ %S+ (%d+)'))
    if since then
      local _, k = math.frexp(math.max(now - since, 0))
      counts[k] = (counts[k] or 0) + 1
    end
  end
  for k, n in pairs(counts) do try('HINCRBY', stats, 'took:' .. k, n) end
end

-- Removes a job that is held and done, of a queue without windows and max-active.
local function removeHeld(id, held)
  local gone = call('ZREM', active, id)
  call('HDEL', lease, id)
  -- try: if these keys have another type, nothing in them belongs to the job.
  try('HDEL', payload, id)
  try('HDEL', meta, id)
  if gone == 1 then
    try('HINCRBY', stats, 'acked', '1')
    countDurations({ held })
  end
end
