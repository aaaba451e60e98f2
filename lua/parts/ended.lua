-- Remembers the ids of the jobs that ack.lua has removed, and wakes drains for the places of the `gone` ones that were
-- active. `records`: read before. If that key has another type, nothing in it belongs to the jobs.
if onceFor or maxActive or remembered > 0 or #ended > 1 or records[1] then
  local clock = call('TIME')
  local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
  -- include lib/done
  -- include lib/freed
  remember(ended, records)
  freed(gone, maxActive)
end
