-- Wakes waiting drains if the new first job is due before their next poll. The name of the channel must match
-- wakeChannel in src/store/keys.ts.
local channel = string.gsub(pending, 'pending$', 'wake')
local function wake(soonest)
  if soonest <= now + pollMs and (tonumber(call('ZRANGE', pending, 0, 0, 'WITHSCORES')[2]) or 0) >= soonest then
    local at = string.format('%.0f', soonest)
    -- On a cluster PUBLISH goes to every node. Redis 6 has no SPUBLISH.
    -- on a cluster: if type(try('SPUBLISH', channel, at)) == 'number' then return end
    -- try: a user without permission for the channel may still do the rest.
    try('PUBLISH', channel, at)
  end
end
