-- Sets or removes settings of a queue.
-- ARGV   for each name, value ('': remove it)
-- Reply  the whole config (name, value …)
-- Atomic because settings that are given together belong together.
-- include lib/prelude
-- in a partition: -- include parts/no-limits
for i = 1, #ARGV, 2 do
  -- First write: it frees memory, so a full server also accepts the rest.
  call('HDEL', config, ARGV[i])
  if ARGV[i + 1] ~= '' then call('HSET', config, ARGV[i], ARGV[i + 1]) end
end
if #ARGV > 0 then
  -- include lib/version
end
return call('HGETALL', config)
