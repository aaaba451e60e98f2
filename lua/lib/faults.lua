-- Stands before audit.lua and mend.lua, behind ids.lua: what can be wrong with an id in one structure of a queue. Both judge by
-- this, in the call in which they tell or mend, so that a job that moves between two calls never looks broken.
-- Letters  t it stands in two sets, o it has no payload, e due before 1973, n never due, u nobody can hold its lease,
--          h a lease without end, v held by a move that was not finished, b an id that no drain hands out,
--          i no id that delayq would take, f a payload without an id, m a record without an id,
--          r a record that cannot be read, l a lease of a job that is not active, s a superseded lease whose holder never asked
-- Times in seconds look like 1970, those in microseconds lie behind the year 9999, by which many mean never. 0 means now, to many.
local EARLIEST, LATEST, MINUTE, DAY = 100000000000, 253402300799999, 60000, 86400000

local function hasPayload(id)
  return redis.call('HEXISTS', payload, id) == 1
end

-- Who holds a lease, and since when; nothing when its record is none.
local function holder(held)
  local since, by = string.match(held or '', '^%S+ %S+ (%S+) ?(.*)$')
  if tonumber(since) then return by, tonumber(since) end
end

local function faultOfLease(id, held, inActive)
  -- 'receipt id' → when it was superseded. Its holder may ask until tomorrow; later it has died.
  local superseded = string.find(id, ' ', 1, true) and tonumber(held)
  if superseded then return superseded < now - DAY and 's' or nil end
  return held and not inActive and 'l' or nil
end

local function faultOfRecord(id, text, stands)
  if not text then return nil end
  -- With a payload it is a job that was lost from its set, which is told there.
  if not stands then return not hasPayload(id) and 'm' or nil end
  local good, rec = pcall(cjson.decode, text)
  return not (good and type(rec) == 'table') and 'r' or nil
end

local function faultOfHold(id, ends)
  local by, since = holder(redis.call('HGET', lease, id))
  if not by then return 'u' end
  if ends <= LATEST then return nil end
  if string.sub(by, 1, 5) ~= 'move:' then return 'h' end
  return since < now - MINUTE and 'v' or nil
end

-- What is wrong with an id in the structure `where`, given its scores in pending, active and dead (false: it is not there).
local function faultOf(where, id, p, a, d)
  if where == 'payload' then return not (p or a or d) and hasPayload(id) and 'f' or nil end
  if where == 'meta' then return faultOfRecord(id, redis.call('HGET', meta, id), p or a or d) end
  if where == 'lease' then return faultOfLease(id, redis.call('HGET', lease, id), a) end
  -- Of two sets the first in this order tells it, and keeps the job: there it is handled soonest, so nothing is lost.
  local first = p and 'pending' or a and 'active' or d and 'dead'
  if where ~= first then return nil end
  if p and (a or d) or a and d then return 't' end
  if not hasPayload(id) then
    return not (d and read(redis.call('HGET', meta, id)).reason == 'orphaned') and 'o' or nil
  end
  local n = tonumber(p or a or d)
  local fault = a and faultOfHold(id, n) or p and (n > LATEST and 'n' or n > 0 and n < EARLIEST and 'e') or nil
  if not fault and not isId(id) then return p and 'b' or nil end -- Elsewhere it is dead already, or will be pending again.
  return fault or not (#id <= 256 and string.find(id, '^[!-,.-~][!-~]*$')) and 'i' or nil
end
