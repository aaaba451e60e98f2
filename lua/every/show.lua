-- Returns definitions of recurring jobs. Writes nothing.
-- ARGV   1 most bytes of definitions (the first may be longer), then ids
-- Reply  now, then for each of the first ids its definition and its next occurrence (nil: there is none)
-- Atomic because a definition and its occurrence belong together.
-- include lib/prelude
local reply, bytes = { now }, 0
for i = 2, #ARGV do
  local text = call('HGET', every, ARGV[i])
  bytes = bytes + (text and #text or 0)
  if i > 2 and bytes > tonumber(ARGV[1]) then break end
  reply[2 * i - 2], reply[2 * i - 1] = text, call('ZSCORE', occurs, ARGV[i])
end
return reply
