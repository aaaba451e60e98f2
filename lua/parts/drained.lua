-- Notes that the queue has a drain. These are the first writes of drain.lua: HDEL frees memory, so a full server also
-- accepts the rest, and a user without permission for these two is refused before any job moves.
call('HDEL', stats, 'drained')
call('HSET', stats, 'drained', stamp)
if tonumber(sampled) ~= minute then
  -- include lib/sample
end
