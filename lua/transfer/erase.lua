-- Removes what other software has stored about jobs, if it has not changed since it was read.
-- KEYS   1 a sorted set (id → time), a hash (id → value), or a string key with the value of one job
-- ARGV   1 zset, hash or string, then for each job: id, its time or value
-- Reply  for each job: 1 removed, 0 it has changed, nil it was gone
-- Atomic because a producer may write at any moment, and another consumer takes a job by its removal.
local key, kind, reply = KEYS[1], ARGV[1], {}
for i = 2, #ARGV, 2 do
  local id, found = ARGV[i]
  if kind == 'zset' then
    found = redis.call('ZSCORE', key, id)
  elseif kind == 'hash' then
    found = redis.call('HGET', key, id)
  else
    -- In place of GET: it does not fail for a key of another type.
    found = redis.call('MGET', key)[1]
  end
  local isSame = found == ARGV[i + 1]
  if isSame and kind == 'zset' then
    redis.call('ZREM', key, id)
  elseif isSame and kind == 'hash' then
    redis.call('HDEL', key, id)
  elseif isSame then
    redis.call('UNLINK', key)
  end
  reply[#reply + 1] = found and (isSame and 1 or 0)
end
return reply
