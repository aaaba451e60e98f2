-- Finds faults in the ids of one structure: in a slice of it, or in the given ids. Writes nothing.
-- ARGV   1 pending | active | dead | payload | meta | lease, 2 cursor ('': check the given ids), 3 how many,
--        4 '1': try HSCAN without values, then the ids
-- Reply  now, next cursor ('0': the end), how many ids were checked, 1 if this Redis has no HSCAN without values,
--        then id and letter (faults.lua) of each fault
-- Atomic because a fault depends on several structures, which are consistent only at one moment.
-- include lib/prelude
-- include lib/ids
-- include lib/faults
local where, most, ids = ARGV[1], tonumber(ARGV[3]), {}
local places = { pending = pending, active = active, dead = dead, payload = payload, meta = meta, lease = lease }
local place, cursor, refused = places[where], ARGV[2], 0
if not place or not atLeast(1, ARGV[3]) then return BAD end

-- Before Redis 7.4 HSCAN also returns the values, and payloads may be large: limit the count by the size of a few.
local function affordable()
  local largest = 1
  for _, id in ipairs(call('HRANDFIELD', place, 8)) do
    largest = math.max(largest, call('HSTRLEN', place, id))
  end
  return math.max(1, math.min(most, math.floor(262144 / largest)))
end

if cursor == '' then
  ids = { unpack(ARGV, 5) }
elseif call('EXISTS', place) == 0 then
  cursor = '0'
else
  local found, step = false, 1
  if where == 'pending' or where == 'active' or where == 'dead' then
    found, step = call('ZSCAN', place, cursor, 'COUNT', most), 2
  elseif call('HLEN', place) <= 200 then
    found = { '0', call('HKEYS', place) }
  else
    found = ARGV[4] == '1' and try('HSCAN', place, cursor, 'COUNT', most, 'NOVALUES')
    if not found or found.err then
      refused = found and 1 or 0
      found, step = call('HSCAN', place, cursor, 'COUNT', affordable()), 2
    end
  end
  cursor = found[1]
  for i = 1, #found[2], step do ids[#ids + 1] = found[2][i] end
end

local reply = { now, cursor, #ids, refused }
-- In portions: a structure in Redis's compact encoding is returned whole, and its limit can be configured.
for from = 1, #ids, 500 do
  local upto = math.min(from + 499, #ids)
  local p = call('ZMSCORE', pending, unpack(ids, from, upto))
  local a = call('ZMSCORE', active, unpack(ids, from, upto))
  local d = call('ZMSCORE', dead, unpack(ids, from, upto))
  for i = from, upto do
    local n = i - from + 1
    local fault = faultOf(where, ids[i], p[n], a[n], d[n])
    if fault then reply[#reply + 1], reply[#reply + 2] = ids[i], fault end
  end
end
return reply
