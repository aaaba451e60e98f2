-- Returns events. Writes nothing.
-- ARGV   1 from where: as XRANGE, 2 how many, perhaps 3 the name of a group: then from where it is
-- Reply  now, 1 if the queue keeps events, how many there ever were ('': unknown, before Redis 7), how many there are,
--        id of the first ('': none), id of the last one ever ('0-0': none); of the group: 1 if it is there, its
--        position, how many events there were up to it ('': unknown); then for each event its id and its fields
-- Atomic because what is removed between two calls could not be told from what was never there.
-- include lib/prelude
local events, from = string.sub(pending, 1, -8) .. 'events', ARGV[1]
local about, group = {}, { 0, '', '' }
local function fieldsOf(list)
  local fields = {}
  for i = 1, #list, 2 do fields[list[i]] = list[i + 1] end
  return fields
end
if call('EXISTS', events) == 1 then
  about = fieldsOf(call('XINFO', 'STREAM', events))
  for _, list in ipairs(ARGV[3] and call('XINFO', 'GROUPS', events) or {}) do
    local found = fieldsOf(list)
    if found.name == ARGV[3] then
      group, from = { 1, found['last-delivered-id'], found['entries-read'] or '' }, '(' .. found['last-delivered-id']
    end
  end
end
local entries = about.length and call('XRANGE', events, from, '+', 'COUNT', ARGV[2]) or {}
return {
  now, uses and string.find(uses, 'events', 1, true) and 1 or 0, about['entries-added'] or '', about.length or 0,
  about['first-entry'] and about['first-entry'][1] or '', about['last-generated-id'] or '0-0',
  group[1], group[2], group[3], entries,
}
