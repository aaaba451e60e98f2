-- Stops delivering jobs from a queue, or starts again.
-- ARGV   1 how long ('+ms' from now | inf | '': resume)
-- Reply  now, until when it was paused before ('': it was not), until when it is paused ('': it is not)
-- Atomic because the old and the new state must refer to the same moment of Redis's clock.
-- include lib/prelude
-- include lib/uses
local length, before = ARGV[1], tonumber(call('HGET', config, 'paused'))
if length ~= '' and length ~= 'inf' and not atLeast(0, length) then return BAD end
-- First write: it frees memory, so a full server also accepts the rest.
call('HDEL', config, 'paused')
local untilMs = length
if length ~= '' then
  if length ~= 'inf' then untilMs = string.format('%.0f', now + tonumber(length)) end
  call('HSET', config, 'paused', untilMs)
elseif before then
  -- Waiting drains poll at once.
  publish(string.format('%.0f', now))
end
noteUses()
noteChange()
local was = before and before > now and (before < math.huge and string.format('%.0f', before) or 'inf') or ''
return { now, was, untilMs }
