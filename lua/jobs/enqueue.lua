-- Puts jobs into pending.
-- ARGV   'keep', then one job: id, payload, time ('+ms' from now | ms since 1970), perhaps a record (JSON with tries,
--        maxLost, deliveries, ttl, once, created and attributes as a:NAME); 'new' in its place if the caller has just
--        made the id at random
--        or 'keep N T R' or 'replace N T R' or 'active N T R', which replaces active jobs and leaves all others, or
--        'back N T R', which keeps jobs but ignores windows, then N ids, N payloads, T times, R records ('': none).
--        Times and records repeat if there are fewer than jobs. Only these forms take samples
-- Reply  now, a letter for each job (c created, r replaced, k kept, d kept-dead, e kept-done, m not active), 1 if
--        anything was written, 2 if the queue may be new: the caller then lists it, because the list of queues is in
--        another slot. Now alone, not in a list: one job was created (c, 1)
-- Atomic because due time and payload must appear together, and an id must be in only one set.
-- The first write grows memory on purpose: so a full server rejects the whole call.
-- include lib/queue
-- include lib/now

-- One job whose id is new: nearly every call of a program that enqueues one at a time.
if ARGV[1] == 'new' or ARGV[1] == 'keep' then
  local how, id, body, when, record = unpack(ARGV)
  local hasWindows = uses and string.find(uses, 'windows', 1, true)
  -- Nothing can hold an id that was just made, except a job, which has a payload.
  local isFree = how == 'new' or not call('ZSCORE', active, id) and not call('ZSCORE', dead, id)
  if hasWindows and how == 'keep' then isFree = isFree and (tonumber(call('ZSCORE', done, id)) or 0) <= now end
  if record and isFree then
    isFree = hasWindows or not string.find(record, '"once":', 1, true)
    call('HLEN', meta) -- Only for its type.
  end
  if isFree and call('HSETNX', payload, id, body) == 1 then
    local due = when + (string.byte(when) == 43 and now or 0)
    local added = try('ZADD', pending, 'NX', string.format('%d', due), id)
    if added == 1 then
      if record then call('HSET', meta, id, record) end
      local begun = try('HINCRBY', stats, 'enqueued', '1') == 1
      if hasWindows then
        -- include lib/windows
        sweep(100)
      end
      if uses and string.find(uses, 'events', 1, true) then
        -- include lib/events
        tell('enqueued', id, nil, nil, due)
      end
      if how == 'keep' and uses and string.find(uses, 'results', 1, true) then
        -- include lib/results
        forgetDone({ id })
      end
      if due <= now + pollMs then
        -- include lib/wake
        wake(due)
      end
      return begun and { now, 'c', 2 } or now
    end
    call('HDEL', payload, id)
    if added ~= 0 then return added end
    -- The id is an orphan in pending: the long way repairs it.
  end
end

-- A function: its many locals would cost each call that takes the short way.
local function enqueueMany()
  -- include lib/stats
  -- include lib/wake
  -- include lib/leases
  -- include lib/windows
  -- include lib/growth
  -- include lib/results
  local ARGV = ARGV -- A local is faster, and this is used for each job.
  -- The form for one job becomes a batch of one, with a record if there is a fifth argument.
  if ARGV[1] == 'keep' or ARGV[1] == 'new' then ARGV = { 'keep 1 1 ' .. #ARGV - 4, unpack(ARGV, 2) } end
  local mode, n, whens, records = string.match(ARGV[1], '^(%a+) (%d+) (%d+) (%d+)$')
  n, whens, records = tonumber(n), tonumber(whens), tonumber(records)
  local bodyAt, whenAt, recordAt = 1 + n, 2 + 2 * n, 2 + 2 * n + whens
  -- What was taken at most once, and comes back, was not done.
  local isBack = mode == 'back'
  if isBack then mode = 'keep' end
  call('HLEN', payload) -- Only for its type.
  local function where(set)
    return call('ZCARD', set) > 0 and call('ZMSCORE', set, unpack(ARGV, 2, bodyAt)) or {}
  end
  local inPending, inActive, inDead = where(pending), where(active), where(dead)

  -- places: id → its index among the jobs to write. If an id is given twice, the last one is written, as by two calls.
  local letters, places, old, superseded, hasOwnWindow = {}, {}, {}, {}, false
  local scores, bodies, metas, dues, soonest = {}, {}, {}, {}, math.huge
  local m, created, replaced = 0, 0, 0
  for i = 1, n do
    local id = ARGV[1 + i]
    local place, there = places[id], inPending[i] or inActive[i] or inDead[i]
    -- An id without a payload is not a job: enqueuing it repairs it.
    local exists = place or there and call('HEXISTS', payload, id) == 1
    if exists and mode == 'keep' then
      letters[i] = not place and inDead[i] and 'd' or 'k'
    elseif mode == 'active' and not (inActive[i] and exists and not isTransferred(call('HGET', lease, id))) then
      letters[i] = 'm'
    elseif hasWindows and not exists and not isBack and isRemembered(id) then
      letters[i] = 'e'
    else
      if not place then
        place, m, places[id] = m + 1, m + 1, m + 1
        if there then old[#old + 1] = id end
        if inActive[i] then superseded[#superseded + 1] = id end
      end
      if exists then letters[i], replaced = 'r', replaced + 1 else letters[i], created = 'c', created + 1 end
      local when = ARGV[whenAt + (i - 1) % whens]
      local due = dues[when]
      if not due then
        -- Many jobs share a delay, and formatting a number costs as much as storing it.
        local ms = tonumber(when) + (string.sub(when, 1, 1) == '+' and now or 0)
        due = string.format('%d', ms)
        soonest, dues[when] = math.min(soonest, ms), due
      end
      local at = 2 * place
      scores[at - 1], scores[at], bodies[at - 1], bodies[at] = due, id, id, ARGV[bodyAt + i]
      local record = records > 0 and ARGV[recordAt + (i - 1) % records] or ''
      metas[id] = record ~= '' and record or nil
      if record ~= '' then hasOwnWindow = hasOwnWindow or windowIn(record) ~= nil end
    end
  end

  if m > 0 then
    call('HLEN', meta) call('HLEN', lease) -- Only for their types.
    call('ZADD', pending, unpack(scores))
    call('HSET', payload, unpack(bodies))
    if #old > 0 then call('ZREM', dead, unpack(old)) call('HDEL', meta, unpack(old)) end
    if #superseded > 0 then
      countReturned(superseded)
      for _, id in ipairs(superseded) do
        local held = call('HGET', lease, id)
        call('ZREM', active, id)
        supersede(id, held)
      end
      freed(#superseded)
    end
    local fields = {}
    for id, record in pairs(metas) do fields[#fields + 1], fields[#fields + 2] = id, record end
    if #fields > 0 then call('HSET', meta, unpack(fields)) end
    if hasOwnWindow then openWindow() end
    if forgetDone then
      local ids = {}
      for id in pairs(places) do ids[#ids + 1] = id end
      forgetDone(ids)
    end
    for id in pairs(isBack and hasWindows and places or {}) do call('ZREM', done, id) end
    sweep(100)
    for i = 1, tell and n or 0 do
      local kind = letters[i] == 'r' and 'replaced' or letters[i] == 'c' and (isBack and 'returned' or 'enqueued')
      if kind then tell(kind, ARGV[1 + i], nil, nil, dues[ARGV[whenAt + (i - 1) % whens]]) end
    end
  end
  sample()
  -- If all jobs were kept, this counter is the only write, and the one that --durable waits for.
  local kept = mode == 'active' and 0 or n - created - replaced
  local e, r, k = count('enqueued', created), count('replaced', replaced), count('kept', kept)
  -- A counter that starts here means a new queue, whatever a drain or other software has written to it before.
  local begun = e == created or r == replaced or k == kept
  wake(soonest)
  return { now, table.concat(letters), begun and 2 or (k or m > 0) and 1 or 0 }
end
return enqueueMany()
