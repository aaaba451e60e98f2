-- Puts the definition of a recurring job, or changes it.
-- ARGV   1 id, 2 rev that it must have now ('': there must be none), 3 header, 4 payload, 5 next occurrence, ms ('inf':
--        it is paused, '': as it is)
-- Reply  1 done, 0 it has another rev, and nothing was done
-- Atomic because a definition without an occurrence makes no jobs, and of two changes at once one must know of the
-- other.
-- include lib/prelude
-- include lib/uses
local id, rev, header, body, at = unpack(ARGV)
if at ~= '' and not tonumber(at) then return BAD end
local text = call('HGET', every, id)
-- The rev of one that cannot be read is '-'.
if (text and (string.match(text, '^[^\n]*\n{"rev":"(%w+)"') or '-') or '') ~= rev then return { 0 } end
local last = text and string.match(text, '^([^\n]*)\n[^\n]*\n') or ''
call('HSET', every, id, last .. '\n' .. header .. '\n' .. body)
if at ~= '' then
  call('ZADD', occurs, at, id)
  if tonumber(at) <= now + pollMs then publish(at) end
end
if not text then noteUses() end
return { 1 }
