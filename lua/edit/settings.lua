-- Gives a partition the settings and the pause of partition 0, unless it has newer ones.
-- ARGV   1 their version, then for each name, value
-- Reply  1 done, 0 they are not newer
-- Atomic because settings belong together, and of two commands the later one must hold everywhere.
-- include lib/prelude
-- include lib/uses
if not atLeast(0, ARGV[1]) then return BAD end
local fields, paused = call('HGETALL', config), false
if (tonumber(call('HGET', stats, 'configured')) or -1) >= tonumber(ARGV[1]) then return { 0 } end
-- First write: it frees memory, so a full server also accepts the rest.
call('HDEL', config, 'paused')
for i = 1, #fields, 2 do
  paused = paused or fields[i] == 'paused'
  if not string.find(OWN_FIELDS, ' ' .. fields[i] .. ' ', 1, true) then call('HDEL', config, fields[i]) end
end
if #ARGV > 1 then call('HSET', config, unpack(ARGV, 2)) end
noteUses()
call('HSET', stats, 'configured', ARGV[1])
-- Waiting drains poll at once, in case the queue is no longer paused.
if paused then publish(string.format('%.0f', now)) end
return { 1 }
