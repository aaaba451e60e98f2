-- Removes values of other software that have not changed since they were copied.
-- KEYS   1 the hash (id → value), or the string key of one job
-- ARGV   for each job: id ('': the string key is its value), value
-- Reply  how many were removed
-- Atomic because a producer may write a new value at any moment.
local gone = 0
for i = 1, #ARGV, 2 do
  local id, value = ARGV[i], ARGV[i + 1]
  if id == '' then
    if redis.call('MGET', KEYS[1])[1] == value then gone = redis.call('UNLINK', KEYS[1]) end
  elseif redis.call('HGET', KEYS[1], id) == value then
    gone = gone + redis.call('HDEL', KEYS[1], id)
  end
end
return gone
