-- Adds n to a counter. Returns its new value; false if nothing was written. try: a counter that other software has
-- overwritten must not stop the script. An n that is too large comes from a due time that makes no sense.
local function count(name, n)
  local total = n > 0 and n <= 1e15 and try('HINCRBY', stats, name, string.format('%d', n))
  return type(total) == 'number' and total
end
