-- include lib/queue
-- include lib/now
-- The stream that jobs are handed to (drain --to-stream). Consumer groups go on from there.

-- The most entries that one call removes: about 1 ms.
local MAX_TRIM = 10000

-- The two numbers of an entry's id.
local function partsOf(id)
  local ms, n = string.match(id, '^(%d+)-(%d+)$')
  return tonumber(ms), tonumber(n)
end

-- Removes the entries that every group has acked; XACK alone frees no memory. Returns how many entries are not acked,
-- by the group that lags most. Without groups that is all of them. So it is where the server does not know how far a
-- group lags: Redis 6.2, or after an XDEL. Refused before it writes if the key has another type.
local function unacked()
  local size = call('XLEN', stream)
  local groups, least, lag = size > 0 and call('XINFO', 'GROUPS', stream) or {}, nil, 0
  for _, fields in ipairs(groups) do
    local group = {}
    for i = 1, #fields, 2 do group[fields[i]] = fields[i + 1] end
    -- Without a pending entry, all that were delivered are acked.
    local first = group.pending > 0 and call('XPENDING', stream, group.name)[2] or group['last-delivered-id']
    local ms, n = partsOf(first)
    local leastMs, leastN = partsOf(least or first)
    if not least or ms < leastMs or ms == leastMs and n < leastN then least = first end
    lag = lag and group.lag and math.max(lag, group.pending + group.lag)
  end
  if least and size <= MAX_TRIM then
    size = size - call('XTRIM', stream, 'MINID', least)
  elseif least then
    size = size - call('XTRIM', stream, 'MINID', '~', least, 'LIMIT', MAX_TRIM)
  end
  return least and lag or size
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
