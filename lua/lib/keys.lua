-- Names the keys, in the order of KEY_ORDER in src/redis/keys.ts, and the ways to call Redis.
local call, try = redis.call, redis.pcall
local pending, active, lease, dead, payload, meta, stats, config = unpack(KEYS)
