-- Brings a partition up to a newer layout, if it still has the one that the caller believes. By this, each step of a
-- growth may be repeated by anybody.
-- ARGV   1 layout, 2 tags of all partitions, 3 version that its settings must have now ('': any)
-- Reply  1 done, 0 its settings have another version, and nothing was done
-- Atomic because no call may be done under the old layout after one under the new.
-- include lib/prelude
if ARGV[3] ~= '' and (call('HGET', stats, 'configured') or '0') ~= ARGV[3] then return { 0 } end
if call('HGET', config, 'rate') or call('HGET', config, 'maxActive') then
  return redis.error_reply('CONFLICT a queue with limits (rate, max-active) cannot have partitions')
end
-- First write: it frees memory, so a full server also accepts the rest.
call('HDEL', config, 'returned')
-- What counts until the growth is done.
if not string.find(ARGV[1], ' from ', 1, true) then call('HDEL', config, 'growing', 'carried') end
call('HSET', config, 'layout', ARGV[1] .. (uses and ' uses ' .. uses or ''), 'partitions', ARGV[2])
return { 1 }
