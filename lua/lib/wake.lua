-- include lib/queue
-- include lib/now
-- Wakes waiting drains. try: a user without permission for the channel may still do the rest.

local function publish(at)
  -- On a cluster PUBLISH goes to every node. Redis 6 has no SPUBLISH.
  if channel and type(try('SPUBLISH', channel, at)) == 'number' then return end
  try('PUBLISH', string.sub(pending, 1, -8) .. 'wake', at)
end

-- If the new first job is due before their next poll.
local function wake(soonest)
  if soonest <= now + pollMs and (tonumber(call('ZRANGE', pending, 0, 0, 'WITHSCORES')[2]) or 0) >= soonest then
    publish(string.format('%.0f', soonest))
  end
end

-- If n jobs that have just left `active` made the first place under max-active free. After the writes nothing may fail,
-- whatever `pending` is.
local function freed(n)
  if n == 0 or not (uses and string.find(uses, 'maxActive', 1, true)) then return end
  local most = tonumber(try('HGET', config, 'maxActive'))
  if not most then return end
  local live = call('ZCOUNT', active, '(' .. string.format('%.0f', now), '(inf')
  local due = live < most and live + n >= most and try('ZCOUNT', pending, '-inf', now)
  if type(due) == 'number' and due > 0 then publish(string.format('%.0f', now)) end
end
