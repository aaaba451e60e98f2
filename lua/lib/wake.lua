-- Wakes waiting drains if the new first job is due before their next poll. Their interval, ms, must match POLL_MS in
-- src/redis/keys.ts, and the name of the channel wakeOf there.
local channel = string.gsub(pending, 'pending$', 'wake')
local function wake(soonest)
  if soonest <= now + 1000 and (tonumber(call('ZRANGE', pending, 0, 0, 'WITHSCORES')[2]) or 0) >= soonest then
    -- try: a user without permission for the channel may still do the rest.
    try('PUBLISH', channel, string.format('%.0f', soonest))
  end
end
