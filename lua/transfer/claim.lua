-- Claims jobs of other software, whose sorted set then no longer has them; or takes over the claims of another run.
-- KEYS   1 the sorted set (id → time), 2 the claims (id → owner, token, score, due ms, SHA-1 of the value)
-- ARGV   1 owner, then for each job: id, its score ('': take over its claim), what follows the owner in its claim
-- Reply  for each job: what follows the owner in its claim, or nil: it has changed, or there is no claim to take over
-- Atomic because other consumers take jobs out of the set: only one may get each. The first write grows memory on
-- purpose: so a full server rejects the whole call.
local set, claims, owner, reply = KEYS[1], KEYS[2], ARGV[1], {}
for i = 2, #ARGV, 3 do
  local id, score, rest = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local there, claim = redis.call('ZSCORE', set, id), redis.call('HGET', claims, id)
  if score == '' then
    rest = claim and string.match(claim, '^%S+ (.*)$')
  elseif claim or there ~= score then
    rest = false
  end
  if rest then
    redis.call('HSET', claims, id, owner .. ' ' .. rest)
    if score ~= '' then redis.call('ZREM', set, id) end
  end
  reply[#reply + 1] = rest
end
return reply
