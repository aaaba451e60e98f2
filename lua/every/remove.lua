-- Removes the definitions of recurring jobs. Jobs that they have made stay.
-- ARGV   ids
-- Reply  for each id 1 if it was removed, 0 if there was none
-- Atomic because an occurrence without a definition is a fault.
-- include lib/prelude
-- include lib/uses
local reply = {}
for i, id in ipairs(ARGV) do
  reply[i] = call('HDEL', every, id)
  call('ZREM', occurs, id)
end
noteUses()
return reply
