-- Sets or removes defaults of a queue.
-- ARGV   for each name, value ('': remove it)
-- Reply  all of the config (name, value …)
-- Atomic because settings given together belong together.
for i = 1, #ARGV, 2 do
  -- The first write frees memory: after it a full server lets the rest through.
  redis.call('HDEL', config, ARGV[i])
  if ARGV[i + 1] ~= '' then redis.call('HSET', config, ARGV[i], ARGV[i + 1]) end
end
return redis.call('HGETALL', config)
