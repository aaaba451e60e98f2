-- Wakes waiting drains if the new first job is due before their next poll. Must match src/redis/keys.ts: the interval,
-- ms, POLL_MS there, and the name of the channel wakeChannel.
local channel = string.gsub(pending, 'pending$', 'wake')
local function wake(soonest)
  if soonest <= now + 1000 and (tonumber(call('ZRANGE', pending, 0, 0, 'WITHSCORES')[2]) or 0) >= soonest then
    local at = string.format('%.0f', soonest)
    -- On a cluster PUBLISH goes to every node. Redis 6 has no SPUBLISH.
    -- on a cluster: if type(try('SPUBLISH', channel, at)) == 'number' then return end
    -- try: a user without permission for the channel may still do the rest.
    try('PUBLISH', channel, at)
  end
end
