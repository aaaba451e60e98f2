-- include lib/queue
-- include lib/records
-- Moves jobs into a Redis stream, the last key of the call (docs/guide/streams.md).
local stream = KEYS[#KEYS]
local kind = call('TYPE', stream).ok
if kind ~= 'stream' and kind ~= 'none' then
  return redis.error_reply('STREAM ' .. stream .. ' is a ' .. kind .. ', not a stream')
end

-- The id of an entry as a text that compares as ids do: their halves have 64 bits, more than a number can represent.
local function sortable(id)
  local ms, seq = string.match(id, '^(%d+)-(%d+)$')
  return string.rep('0', 20 - #ms) .. ms .. string.rep('0', 20 - #seq) .. seq
end

-- The first entry that some group has not acked, if there is a group. The group with the most entries that are not
-- acked, and how many it has. Redis 6 tells no lag, and later ones do not after an XDEL: then the length counts.
local keep, slowest, unacked, byLength = nil, '', -1, kind == 'none'
for _, fields in ipairs(kind == 'stream' and call('XINFO', 'GROUPS', stream) or {}) do
  local group = {}
  for i = 1, #fields, 2 do group[fields[i]] = fields[i + 1] end
  local ms, seq = string.match(group['last-delivered-id'], '^(%d+)-(%d+)$')
  -- The one after the last that it has read. Of an id that is too long to add 1 to, an entry too many stays.
  local from = ms .. '-' .. (#seq < 16 and string.format('%.0f', seq + 1) or seq)
  local oldest = group.pending > 0 and call('XPENDING', stream, group.name)[2]
  for _, id in ipairs({ from, oldest or nil }) do
    if not keep or sortable(id) < sortable(keep) then keep = id end
  end
  local n = group.lag and group.pending + group.lag or math.huge
  if n > unacked then slowest, unacked = group.name, n end
end
if not keep or unacked == math.huge then byLength = true end

-- Removes what every group has acked. Returns how many entries are not, and whether it has left some that are.
local function trim()
  local isCut = false
  if keep then
    -- Only whole nodes of the stream can be removed with a limit. The rest of one is few entries.
    isCut = call('XTRIM', stream, 'MINID', '~', keep, 'LIMIT', MAX_TRIM) > MAX_TRIM / 2
    if not isCut then call('XTRIM', stream, 'MINID', keep) end
  end
  if byLength then unacked = call('XLEN', stream) end
  return unacked, byLength and isCut
end

-- The attributes in a record as JSON, as readAttributes of src/model/attributes.ts; nil: there are none.
local function attributesIn(record)
  local names, attributes, rec = {}, {}, read(record)
  for field, value in pairs(rec) do
    local name = string.match(field, '^a:([a-z][a-z0-9_-]*)$')
    if name and #name <= 32 and type(value) == 'string' and #value <= 128 and (value == '' or isId(value))
      and not (string.find(value, '[\1-\31\127]') or string.find(value, '\194[\128-\159]')
        or string.find(value, '\239\191\189', 1, true)) then
      names[#names + 1] = name
    end
  end
  table.sort(names)
  for i = 1, math.min(#names, 16) do attributes[names[i]] = rec['a:' .. names[i]] end
  return #names > 0 and cjson.encode(attributes) or nil
end

-- Adds jobs: of each its id, its due time, its record (1: none) and its payload.
local function append(jobs)
  local queue = string.match(pending, '{(.*)}:pending$')
  for i = 1, #jobs, 4 do
    local due = string.format('%.0f', math.max(math.floor(tonumber(jobs[i + 1])), -FURTHEST))
    local entry = { 'id', jobs[i], 'queue', queue, 'due', due, 'payload', jobs[i + 3] }
    local attributes = type(jobs[i + 2]) == 'string' and attributesIn(jobs[i + 2])
    if attributes then entry[9], entry[10] = 'attributes', attributes end
    -- If this fails, the first one does, and no job has been moved.
    call('XADD', stream, '*', unpack(entry))
  end
end
