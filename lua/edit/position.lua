-- Moves the position of a group in the events of a queue, or makes the group there.
-- ARGV   1 its name, 2 id of the last event that it has read, 3 how many events there were up to it ('': unknown)
-- Reply  1
-- Atomic because both must happen under the layout that the caller knows.
-- include lib/prelude
local events, name, id, n = string.gsub(pending, 'pending$', 'events'), unpack(ARGV)
-- Redis 6 knows no ENTRIESREAD.
local how = n ~= '' and { 'ENTRIESREAD', n } or {}
local moved = try('XGROUP', 'SETID', events, name, id, unpack(how))
-- There is no such group, or no stream.
if moved.err and not string.find(moved.err, '^WRONGTYPE') then
  moved = try('XGROUP', 'CREATE', events, name, id, 'MKSTREAM', unpack(how))
end
if moved.err and #how > 0 then
  moved = try('XGROUP', 'SETID', events, name, id)
  if moved.err then moved = try('XGROUP', 'CREATE', events, name, id, 'MKSTREAM') end
end
return moved.err and moved or { 1 }
