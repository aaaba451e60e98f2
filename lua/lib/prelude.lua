-- include lib/queue
-- include lib/now
-- include lib/stats
-- include lib/wake
-- include lib/records
-- include lib/leases
-- Opens the scripts that are not called once a job. Rejects, before the first write, whatever would fail later: Redis
-- does not undo the writes of a failed script.

-- Asking for the size of a key is the cheapest way to check its type.
for i, ask in ipairs({ 'ZCARD', 'ZCARD', 'HLEN', 'ZCARD', 'HLEN', 'HLEN', 'HLEN', 'HLEN', 'ZCARD', 'HLEN', 'ZCARD' }) do
  -- No feature has the last three.
  if i > 8 and not uses then break end
  local size = try(ask, KEYS[i])
  if type(size) ~= 'number' then return size end
end

-- Whether a text is a number of at least `least`; false for nil and NaN. For checks before the first write.
local function atLeast(least, text)
  local n = tonumber(text)
  return n ~= nil and n >= least
end
local BAD = redis.error_reply('ARGUMENT an argument of the script is not a number, or too small')

-- Due times for jobs that follow one another, `step` ms apart; the first is `when` ('+ms' from now | ms since 1970).
-- Returns a function from n (0, 1, …) to the n-th due time as text, and the first one; nil if an argument is invalid.
-- Fractions of a ms keep the order, and are exact: until 2039 a double can represent 4,000 steps per ms.
local function spread(when, step)
  local start = (tonumber(when) or math.huge) + (string.sub(when, 1, 1) == '+' and now or 0)
  if not (math.abs(start) <= LATEST_DUE and atLeast(0, step) and tonumber(step) <= LATEST_DUE) then return nil end
  return function(n) return string.format('%.17g', math.min(start + n * step, LATEST_DUE)) end, start
end
