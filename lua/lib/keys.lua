-- Opens every script: names the keys, which have the same order in every script.
local call, try = redis.call, redis.pcall
local pending, active, lease, dead, payload, meta, stats, config = unpack(KEYS)
