-- Puts the definition of a recurring job, or changes it.
-- ARGV   1 id, 2 rev that it must have now ('': there must be none), 3 header, 4 payload, 5 next occurrence, ms ('inf':
--        it is paused, '': as it is)
-- Reply  1 done, 0 it has another rev, and nothing was done
-- Atomic because a definition without an occurrence makes no jobs, and of two changes at once one must know of the other.
-- include lib/prelude
-- include lib/definition
local id, rev, header, body, at = unpack(ARGV)
if at ~= '' and not tonumber(at) then return BAD end
local last, _, was = definition(id)
if (was or '') ~= rev then return { 0 } end
call('HSET', every, id, (last or '') .. '\n' .. header .. '\n' .. body)
if at ~= '' then
  call('ZADD', occurs, at, id)
  if tonumber(at) <= now + pollMs then
    -- As in lib/wake, which looks at jobs only.
    -- on a cluster: if type(try('SPUBLISH', channel, at)) == 'number' then return { 1 } end
    try('PUBLISH', channel, at)
  end
end
return { 1 }
