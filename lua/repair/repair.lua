-- Finds faults in the ids of one structure: in a slice of it, or in the given ids; or mends those of the given ids, as
-- far as that is safe. Never deletes a payload: a job that cannot be repaired goes to dead, where an operator can
-- requeue or cancel it.
-- ARGV   1 pending | active | dead | payload | meta | lease, 2 cursor of a slice ('': check the given ids, 'mend': mend
--        them), 3 how many, 4 '1': try HSCAN without values, then the ids
-- Reply  now, next cursor ('0': the end), how many ids were checked, 1 if this Redis has no HSCAN without values,
--        then id and letter of each fault; of mend: now, a letter for each id: the fault that was mended, '-' if there
--        was none to mend
-- Atomic because a fault depends on several structures, which are consistent only at one moment; and an id whose fault
-- has just disappeared must not be changed.
-- Letters  t in two sets, o no payload, e due before 1973, n never due, u unreadable lease, h a lease that never
--          expires, v held by an unfinished move, b an id that no handler can receive, i an id that delayq would not
--          accept, f a payload without a job, m a record without a job, r an unreadable record, l a lease of a job that
--          is not active, s a superseded lease whose holder never asked, k a job's token of a move that never ended
-- include lib/prelude
-- include lib/growth
local where, most, ids = ARGV[1], tonumber(ARGV[3]), {}
local places = { pending = pending, active = active, dead = dead, payload = payload, meta = meta, lease = lease }
local place, cursor, refused = places[where], ARGV[2], 0
if not place or not atLeast(1, ARGV[3]) then return BAD end

-- Times written in seconds look like 1970, those in microseconds are after the year 9999, which is also used for never.
-- 0 is allowed, because many producers use it for now.
local EARLIEST, LATEST, MINUTE, DAY = 100000000000, 253402300799999, 60000, 86400000

local function hasPayload(id)
  return call('HEXISTS', payload, id) == 1
end

-- Who holds a lease, and since when; nothing if the lease is unreadable.
local function holder(held)
  local since, by = string.match(held or '', '^%S+ %S+ (%S+) ?(.*)$')
  if tonumber(since) then return by, tonumber(since) end
end

local function faultOfLease(id, held, inActive)
  -- 'receipt id' → when it was superseded, or brought here by a move. After a day the holder, or the move, must have
  -- died.
  local since, moved = string.match(string.find(id, ' ', 1, true) and held or '', '^(%d+) ?(%l*)$')
  if since then return tonumber(since) < now - DAY and (moved == 'moved' and 'k' or 's') or nil end
  return held and not inActive and 'l' or nil
end

local function faultOfRecord(id, text, inSet)
  if not text then return nil end
  -- With a payload, it is a job that is in no set: reported for `payload`.
  if not inSet then return not hasPayload(id) and 'm' or nil end
  local good, rec = pcall(cjson.decode, text)
  return not (good and type(rec) == 'table') and 'r' or nil
end

local function faultOfHold(id, ends)
  local by, since = holder(call('HGET', lease, id))
  if not by then return 'u' end
  if ends <= LATEST then return nil end
  if string.sub(by, 1, 5) ~= 'move:' then return 'h' end
  return since < now - MINUTE and 'v' or nil
end

-- The fault of an id in the structure `where`, given its scores in pending, active and dead (false: not in it).
local function faultOf(id, p, a, d)
  if where == 'payload' then return not (p or a or d) and hasPayload(id) and 'f' or nil end
  if where == 'meta' then return faultOfRecord(id, call('HGET', meta, id), p or a or d) end
  if where == 'lease' then return faultOfLease(id, call('HGET', lease, id), a) end
  -- If it is in two sets, the first in this order reports the fault, and keeps the job, which is handled first there.
  local first = p and 'pending' or a and 'active' or d and 'dead'
  if where ~= first then return nil end
  if p and (a or d) or a and d then return 't' end
  if not hasPayload(id) then
    return not (d and read(call('HGET', meta, id)).reason == 'orphaned') and 'o' or nil
  end
  local n = tonumber(p or a or d)
  local isEarly = n < EARLIEST and (n > 0 or n == -math.huge)
  local fault = a and faultOfHold(id, n) or p and (n > LATEST and 'n' or isEarly and 'e') or nil
  -- In other sets it is already dead, or will be pending again.
  if not fault and not isId(id) then return p and 'b' or nil end
  return fault or not (#id <= 256 and string.find(id, '^[!-,.-~][!-~]*$')) and 'i' or nil
end

-- The holder sees that its lease was superseded, so its handler is not killed.
local function retire(id)
  local held = call('HGET', lease, id)
  call('ZREM', active, id)
  supersede(id, held)
end

local function toDead(id, reason)
  bury(id, read(call('HGET', meta, id)), reason)
end

local function fromPending(id, reason)
  call('ZREM', pending, id)
  toDead(id, reason)
  count('dead', 1)
end

local mends = {
  t = function(id)
    if where == 'pending' then retire(id) end
    call('ZREM', dead, id)
  end,
  o = function(id, died)
    call('ZREM', pending, id)
    retire(id)
    toDead(id, 'orphaned')
    if died then call('ZADD', dead, died, id) else count('orphaned', 1) end
  end,
  e = function(id) fromPending(id, 'bad due') end,
  b = function(id) fromPending(id, 'bad id') end,
  -- The holder may still ack. The next drain takes the job back.
  h = function(id) call('ZADD', active, now, id) end,
  u = function(id)
    call('HDEL', lease, id)
    call('ZREM', active, id)
    call('ZADD', pending, now, id)
  end,
  f = function(id) toDead(id, 'found') end,
  m = function(id) call('HDEL', meta, id) end,
  -- Every script already ignores an unreadable record.
  r = function(id) call('HDEL', meta, id) end,
  l = function(id) if hasPayload(id) then retire(id) else call('HDEL', lease, id) end end,
  s = function(id) call('HDEL', lease, id) end,
}
mends.n, mends.k = mends.e, mends.s

if cursor == 'mend' then
  -- First write: it frees memory, so a full server also accepts the rest.
  call('HDEL', lease, '')
  local letters = {}
  for i, id in ipairs({ unpack(ARGV, 5) }) do
    -- One fault may hide another.
    for _ = 1, 4 do
      local p, a, d = call('ZSCORE', pending, id), call('ZSCORE', active, id), call('ZSCORE', dead, id)
      local fault = faultOf(id, p, a, d)
      if not mends[fault or ''] then break end
      mends[fault](id, d)
      countReturned({ id })
      letters[i] = letters[i] or fault
    end
    letters[i] = letters[i] or '-'
  end
  return { now, table.concat(letters) }
end

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
  local step, found = 1
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
    local fault = faultOf(ids[i], p[n], a[n], d[n])
    if fault then reply[#reply + 1], reply[#reply + 2] = ids[i], fault end
  end
end
return reply
