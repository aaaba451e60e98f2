-- Sets a field of a hash, if it still has the value that the caller has read.
-- KEYS   1 the hash
-- ARGV   1 the field, 2 its expected value ('': none), 3 its new value
-- Reply  1; 0: it has another value by now
-- Atomic because two callers may make the same token at once, and only one may believe that it is theirs; and because a
-- token that was removed in the meantime must not come back.
if (redis.call('HGET', KEYS[1], ARGV[1]) or '') ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
return 1
