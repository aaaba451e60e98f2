-- include lib/queue
-- include lib/now
-- The stream that jobs are handed to (drain --to-stream). Consumer groups go on from there.
local kind = call('TYPE', stream).ok
if kind ~= 'stream' and kind ~= 'none' then
  return redis.error_reply('STREAM ' .. stream .. ' is a ' .. kind .. ', not a stream')
end

-- The most entries that one call removes: about 1 ms.
local MAX_TRIM = 10000

-- The two numbers of an entry's id.
local function partsOf(id)
  local ms, n = string.match(id, '^(%d+)-(%d+)$')
  return tonumber(ms), tonumber(n)
end

-- Removes the entries that every group has acked; XACK alone frees no memory. Returns how many entries are not acked,
-- by the group that lags most, and its name. Without groups that is all of them, and so it is where the server does not
-- know how far a group lags: Redis 6.2, or after an XDEL.
local function unacked()
  local size = call('XLEN', stream)
  local groups, least, most, slowest = size > 0 and call('XINFO', 'GROUPS', stream) or {}, nil, -1, ''
  for _, fields in ipairs(groups) do
    local group = {}
    for i = 1, #fields, 2 do group[fields[i]] = fields[i + 1] end
    -- Without a pending entry, all that were delivered are acked.
    local first = group.pending > 0 and call('XPENDING', stream, group.name)[2] or group['last-delivered-id']
    local ms, n = partsOf(first)
    local leastMs, leastN = partsOf(least or first)
    if not least or ms < leastMs or ms == leastMs and n < leastN then least = first end
    local behind = group.lag and group.pending + group.lag or math.huge
    if behind > most then most, slowest = behind, group.name end
  end
  if least and size <= MAX_TRIM then
    size = size - call('XTRIM', stream, 'MINID', least)
  elseif least then
    size = size - call('XTRIM', stream, 'MINID', '~', least, 'LIMIT', MAX_TRIM)
  end
  return least and most < math.huge and most or size, slowest
end

-- Adds a job, whose record is `rec` if it has one.
local function addToStream(id, due, body, rec)
  local attributes = {}
  for name, value in pairs(rec or {}) do
    if string.sub(name, 1, 2) == 'a:' then attributes[string.sub(name, 3)] = value end
  end
  local queue, ms = string.match(pending, '{(.*)}'), string.format('%.0f', math.floor(due))
  local fields = { 'id', id, 'queue', queue, 'due', ms, 'payload', body }
  if next(attributes) then fields[9], fields[10] = 'attributes', cjson.encode(attributes) end
  call('XADD', stream, '*', unpack(fields))
end
