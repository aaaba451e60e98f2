-- Precedes every script, after prelude.lua. Reads and writes what is stored about single jobs: their records in meta,
-- and their leases. Nothing that other software has written there may stop the queue.

-- A job's record. Ignores everything that cannot be read, or could not be written again.
local function read(text)
  local good, found = pcall(cjson.decode, text or '{}')
  local rec = {}
  for name, value in pairs(good and type(found) == 'table' and found or {}) do
    local kind = type(value)
    local plain = kind == 'string' or kind == 'boolean' or kind == 'number' and math.abs(value) <= 1e15
    if type(name) == 'string' and plain then rec[name] = value end
  end
  return rec
end

-- A count or a time from a record or the config; `otherwise` if it is invalid.
local function counted(value, otherwise)
  local n = tonumber(value)
  return n and n >= 0 and n <= 1e15 and math.floor(n) or otherwise
end

local function write(id, rec)
  redis.call('HSET', meta, id, cjson.encode(rec))
end

local function bury(id, rec, reason)
  rec.reason = reason
  redis.call('ZADD', dead, now, id)
  write(id, rec)
end

-- Removes the payloads and records of jobs.
local function drop(ids)
  if #ids == 0 then return end
  redis.call('HDEL', payload, unpack(ids))
  redis.call('HDEL', meta, unpack(ids))
end

-- Ends the lease of a job that was replaced or cancelled. The field 'receipt id' tells its holder so.
local function supersede(id, held)
  redis.call('HDEL', lease, id)
  if held then redis.call('HSET', lease, string.match(held, '^%S*') .. ' ' .. id, now) end
end

-- The due time in a lease; now if there is none, or none that is valid as a score and in a record.
local function dueOf(held)
  local n = tonumber(held and string.match(held, '^%S+ (%S+)'))
  return n and math.abs(n) <= 1e15 and n or now
end

-- Due times for jobs that follow one another, `step` ms apart; the first is `when` ('+ms' from now | ms since 1970).
-- Returns a function from n (0, 1, …) to the n-th due time as text, and the first one; nil if an argument is invalid.
-- Fractions of a ms keep the order, and are exact: until 2039 a double can represent 4,000 steps per ms.
local function spread(when, step)
  local start = (tonumber(when) or math.huge) + (string.sub(when, 1, 1) == '+' and now or 0)
  if not (math.abs(start) <= 1e15 and atLeast(0, step) and tonumber(step) <= 1e15) then return nil end
  return function(n) return string.format('%.17g', math.min(start + n * step, 1e15)) end, start
end

-- The default lease of the queue, ms.
local function queueLease(text)
  return math.max(counted(text, 60000), 1)
end

-- The counts of a job in the reply of drain: attempt, failures, tries. With `sent`, a list of them and of that.
local function countsOf(rec, tries, sent)
  local failures, losses = counted(rec.failures, 0), counted(rec.losses, 0)
  local counts = string.format('%.0f %.0f %.0f', 1 + failures + losses, failures, counted(rec.tries, tries))
  return sent and { counts, sent } or counts
end

-- Checks the leases of the jobs ARGV[first], ARGV[first + step] … (an id, then its receipt). Returns the ids, a letter
-- for each (h held, s superseded, l lost) and the leases. A superseded lease is known by the field 'receipt id'
-- (supersede).
local function checkLeases(first, step)
  local ids, letters = {}, {}
  for i = first, #ARGV, step do ids[#ids + 1] = ARGV[i] end
  local leases = redis.call('HMGET', lease, unpack(ids))
  for i, id in ipairs(ids) do
    local receipt = ARGV[first + (i - 1) * step + 1]
    if leases[i] and string.sub(leases[i], 1, #receipt + 1) == receipt .. ' ' then
      letters[i] = 'h'
    else
      letters[i] = redis.call('HEXISTS', lease, receipt .. ' ' .. id) == 1 and 's' or 'l'
    end
  end
  return ids, letters, leases
end
