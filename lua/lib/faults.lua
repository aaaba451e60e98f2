-- The faults that an id can have in one structure of a queue, for audit.lua and mend.lua. Needs ids.lua. Both check in
-- the same call in which they report or mend, so a job that changes its state between two calls never looks broken.
-- Letters  t in two sets, o no payload, e due before 1973, n never due, u unreadable lease, h a lease that never
--          expires, v held by an unfinished move, b an id that no handler can receive, i an id that delayq would not
--          accept, f a payload without a job, m a record without a job, r an unreadable record, l a lease of a job that
--          is not active, s a superseded lease whose holder never asked, k a job's token of a move that never ended
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
  -- 'receipt id' → when it was superseded, or brought here by a move. After a day the holder, or the move, must have died.
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
local function faultOf(where, id, p, a, d)
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
  if not fault and not isId(id) then return p and 'b' or nil end -- In other sets it is already dead, or will be pending again.
  return fault or not (#id <= 256 and string.find(id, '^[!-,.-~][!-~]*$')) and 'i' or nil
end
