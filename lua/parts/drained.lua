-- Notes that the queue has a drain. These are the first writes of drain.lua: HDEL frees memory, so a full server also
-- accepts the rest, and a user without permission for these two is refused before any job moves. A caller without a name
-- only takes leases back, and is no drain.
local drained = by ~= '' and stamp or call('HGET', stats, 'drained')
call('HDEL', stats, 'drained')
if drained then call('HSET', stats, 'drained', drained) end
if tonumber(sampled) ~= minute then
  -- include lib/sample
end
