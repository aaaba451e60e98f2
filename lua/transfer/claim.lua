-- Claims jobs of other software, whose sorted set then no longer has them; takes over the claims of another run; ends
-- claims.
-- KEYS   1 the sorted set (id → time), 2 the claims (id → owner, token, score, due ms, SHA-1 of the value)
-- ARGV   1 owner, then for each job: id; what to do: c (claim it), t (take over its claim), d (drop it), b (put the job
--        back, unless its producer has already); with c its score, and what follows the owner in its claim, otherwise
--        twice ''
-- Reply  for each job what follows the owner in its claim; nil: it has changed, there is no claim, or it is another
--        run's
-- Atomic because other consumers take jobs out of the set: only one may get each, a job must be claimed or in the set,
-- and only the owner of a claim may end it. The first write grows memory on purpose: so a full server rejects the whole
-- call.
local set, claims, owner, reply = KEYS[1], KEYS[2], ARGV[1], {}
-- A permission that is missing is told before anything is removed. A full server takes what is put back after that.
local told = redis.pcall('ZADD', set, 'XX', '0', '')
if type(told) == 'table' and told.err and not string.find(told.err, '^OOM') then return told end
for i = 2, #ARGV, 4 do
  local id, act, score, rest = unpack(ARGV, i, i + 3)
  local claim = redis.call('HGET', claims, id)
  local by, was = string.match(claim or '', '^(%S+) (.*)$')
  if act == 'c' then
    if claim or redis.call('ZSCORE', set, id) ~= score then rest = false end
  elseif act == 't' or by == owner then
    rest = was
  else
    rest = false
  end
  if rest and (act == 'c' or act == 't') then
    redis.call('HSET', claims, id, owner .. ' ' .. rest)
    if act == 'c' then redis.call('ZREM', set, id) end
  elseif rest then
    redis.call('HDEL', claims, id)
    if act == 'b' then redis.call('ZADD', set, 'NX', (string.match(rest, '^%S+ (%S+)')), id) end
  end
  reply[#reply + 1] = rest or false
end
return reply
