-- Reads numbers that other software may have written.

-- A count or a time from a record or the config; `otherwise` if it is invalid.
local function counted(value, otherwise)
  local n = tonumber(value)
  return n and n >= 0 and n <= 1e15 and math.floor(n) or otherwise
end

-- The default lease of the queue, ms.
local function queueLease(text)
  return math.max(counted(text, DEFAULT_LEASE_MS), 1)
end
