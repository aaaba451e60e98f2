-- Names the keys, in the order of KEY_ORDER in src/store/keys.ts, and the ways to call Redis.
local call, try = redis.call, redis.pcall
-- The layout that the caller believes; of a queue without partitions 1.
local known = '1'
-- in a partition: known = table.remove(ARGV)
local pending, active, lease, dead, payload, meta, stats, config = unpack(KEYS)
-- in a partition: local done, every, occurs = KEYS[9], KEYS[10], KEYS[11]
