-- Removes values of other software that have not changed since they were copied.
-- KEYS   1 the hash (id → value)
-- ARGV   for each job: id, value
-- Reply  how many were removed
-- Atomic because a producer may write a new value at any moment.
local gone = 0
for i = 1, #ARGV, 2 do
  if redis.call('HGET', KEYS[1], ARGV[i]) == ARGV[i + 1] then gone = gone + redis.call('HDEL', KEYS[1], ARGV[i]) end
end
return gone
