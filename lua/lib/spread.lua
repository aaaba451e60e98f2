-- Due times for jobs that follow one another, `step` ms apart; the first is `when` ('+ms' from now | ms since 1970).
-- Returns a function from n (0, 1, …) to the n-th due time as text, and the first one; nil if an argument is invalid.
-- Fractions of a ms keep the order, and are exact: until 2039 a double can represent 4,000 steps per ms.
local function spread(when, step)
  local start = (tonumber(when) or math.huge) + (string.sub(when, 1, 1) == '+' and now or 0)
  if not (math.abs(start) <= 1e15 and atLeast(0, step) and tonumber(step) <= 1e15) then return nil end
  return function(n) return string.format('%.17g', math.min(start + n * step, 1e15)) end, start
end
