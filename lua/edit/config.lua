-- Sets or removes settings of a queue.
-- ARGV   for each name, value ('': remove it)
-- Reply  the whole config (name, value …)
-- Atomic because settings that are given together belong together.
for i = 1, #ARGV, 2 do
  -- First write: it frees memory, so a full server also accepts the rest.
  redis.call('HDEL', config, ARGV[i])
  if ARGV[i + 1] ~= '' then redis.call('HSET', config, ARGV[i], ARGV[i + 1]) end
end
return redis.call('HGETALL', config)
