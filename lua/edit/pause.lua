-- Has drains take nothing from a queue, or take from it again.
-- ARGV   1 how long ('+ms' from now | inf | '': no longer), 2 wake channel
-- Reply  now, until when it was paused before ('': was not), until when it is paused ('': is not)
-- Atomic because how long is told by Redis's clock, and what was before by the same moment.
local for_, before = ARGV[1], tonumber(redis.call('HGET', config, 'paused'))
if for_ ~= '' and for_ ~= 'inf' and not atLeast(0, for_) then return BAD end
-- The first write frees memory: after it a full server lets the rest through.
redis.call('HDEL', config, 'paused')
local till = for_
if for_ ~= '' then
  till = for_ == 'inf' and for_ or string.format('%.0f', now + tonumber(for_))
  redis.call('HSET', config, 'paused', till)
elseif before then
  -- Watchers look at once. pcall: an account without rights to the channel may still do the rest.
  redis.pcall('PUBLISH', ARGV[2], string.format('%.0f', now))
end
local was = before and before > now and (before < math.huge and string.format('%.0f', before) or 'inf') or ''
return { now, was, till }
