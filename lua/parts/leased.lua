-- Leases the n jobs that drain-batch.lua takes.
if n > 0 and leaseMs > 0 then
  -- A long value makes a hash table of a new hash, and a long member a skip list of a new set: in Redis's compact
  -- encoding, each of many entries is searched for.
  local long = leases == 0 and n > 16 and string.rep(' ', 65)
  -- A user who may not run ZREM is refused before a job moves.
  if long then call('ZREM', active, long) call('ZADD', active, ends, long) end
  if long then leased[2 * n + 1], leased[2 * n + 2] = '', long end
  call('ZADD', active, unpack(leaseEnds))
  call('HSET', lease, unpack(leased))
  if long then call('HDEL', lease, '') call('ZREM', active, long) end
end
