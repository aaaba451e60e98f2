-- Sets or removes settings of a queue.
-- ARGV   for each name, value ('': remove it)
-- Reply  the whole config (name, value …)
-- Atomic because settings that are given together belong together.
-- include lib/prelude
-- include lib/uses
-- A limit counts the jobs of one partition, so a queue with several cannot have one.
for i = 1, layout == ONE_PARTITION and 0 or #ARGV, 2 do
  if string.find(LIMITS, ' ' .. ARGV[i] .. ' ', 1, true) and ARGV[i + 1] ~= '' then
    return redis.error_reply('CONFLICT a queue with partitions cannot have limits (rate, burst, max-active)')
  end
end
for i = 1, #ARGV, 2 do
  -- First write: it frees memory, so a full server also accepts the rest.
  call('HDEL', config, ARGV[i])
  if ARGV[i + 1] ~= '' then call('HSET', config, ARGV[i], ARGV[i + 1]) end
end
if #ARGV > 0 then
  noteUses()
  noteChange()
end
return call('HGETALL', config)
