-- Reads and writes leases. Nothing that other software has written there may stop the queue.

-- Ends the lease of a job that was replaced or cancelled. The field 'receipt id' tells its holder so.
local function supersede(id, held)
  call('HDEL', lease, id)
  if held then call('HSET', lease, string.match(held, '^%S*') .. ' ' .. id, now) end
end

-- The due time in a lease; now if there is none, or none that is valid as a score and in a record.
local function dueOf(held)
  local n = tonumber(held and string.match(held, '^%S+ (%S+)'))
  return n and math.abs(n) <= 1e15 and n or now
end

-- Checks the leases of the jobs ARGV[first], ARGV[first + step] … (an id, then its receipt). Returns the ids, a letter
-- for each (h held, s superseded, l lost) and the leases. A superseded lease is known by the field 'receipt id'
-- (supersede).
local function checkLeases(first, step)
  local ids, letters = {}, {}
  for i = first, #ARGV, step do ids[#ids + 1] = ARGV[i] end
  local leases = call('HMGET', lease, unpack(ids))
  for i, id in ipairs(ids) do
    local receipt = ARGV[first + (i - 1) * step + 1]
    if leases[i] and string.sub(leases[i], 1, #receipt + 1) == receipt .. ' ' then
      letters[i] = 'h'
    else
      letters[i] = call('HEXISTS', lease, receipt .. ' ' .. id) == 1 and 's' or 'l'
    end
  end
  return ids, letters, leases
end
