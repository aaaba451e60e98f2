-- What ack.lua needs to remember the ids of jobs that end.
local now = 0
-- include lib/done
-- The records of jobs, which may have windows. Reads the clock only if something is or will be remembered. If the key has
-- another type, nothing in it belongs to the jobs.
local function recordsOf(ids)
  local all = try('HMGET', meta, unpack(ids))
  if all.err then all = {} end
  local needed = onceFor or remembered > 0
  for i = 1, #ids do needed = needed or all[i] end
  local clock = needed and call('TIME')
  if clock then now = clock[1] * 1000 + math.floor(clock[2] / 1000) end
  return all
end
