-- The rest of enqueue.lua: several jobs, one that replaces another, or one whose id may exist.
local ARGV = ARGV -- A local is faster, and this is used for each job.
-- The form for one job becomes a batch of one, with a record if there is a fifth argument.
if ARGV[1] == 'keep' then ARGV = { 'keep 1 1 ' .. #ARGV - 4, unpack(ARGV, 2) } end
local mode, n, whens, records = string.match(ARGV[1], '^(%a+) (%d+) (%d+) (%d+)$')
n, whens, records = tonumber(n), tonumber(whens), tonumber(records)
local bodyAt, whenAt, recordAt = 1 + n, 2 + 2 * n, 2 + 2 * n + whens
-- in a partition: -- include lib/done
local isBack = false
-- What was taken at most once, and comes back, was not done.
-- in a partition: isBack, mode = mode == 'back', string.gsub(mode, 'back', 'keep')
call('HLEN', payload) -- Only for its type.
local function where(set)
  return call('ZCARD', set) > 0 and call('ZMSCORE', set, unpack(ARGV, 2, bodyAt)) or {}
end
local inPending, inActive, inDead = where(pending), where(active), where(dead)

-- include lib/transferred
-- places: id → its index among the jobs to write. If an id is given twice, the last one is written, as by two calls.
local letters, places, old, superseded = {}, {}, {}, {}
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
  -- in a partition: elseif not exists and not isBack and isRemembered(id) then letters[i] = 'e'
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
  end
end

if m > 0 then
  call('HLEN', meta) call('HLEN', lease) -- Only for their types.
  call('ZADD', pending, unpack(scores))
  call('HSET', payload, unpack(bodies))
  if #old > 0 then call('ZREM', dead, unpack(old)) call('HDEL', meta, unpack(old)) end
  if #superseded > 0 then
    -- include lib/leases
    -- in a partition: -- include lib/returned
    -- in a partition: returned(superseded)
    -- in a partition: -- include lib/freed
    for _, id in ipairs(superseded) do
      local held = call('HGET', lease, id)
      call('ZREM', active, id)
      supersede(id, held)
    end
    -- in a partition: freed(#superseded)
  end
  local fields = {}
  for id, record in pairs(metas) do fields[#fields + 1], fields[#fields + 2] = id, record end
  if #fields > 0 then call('HSET', meta, unpack(fields)) end
  -- in a partition: for id in pairs(isBack and places or {}) do call('ZREM', done, id) end
  -- in a partition: sweep(100)
end
if tonumber(sampled) ~= minute then
  -- include lib/sample
end
-- include lib/count
-- If all jobs were kept, this counter is the only write, and the one that --durable waits for.
local kept = mode == 'active' and 0 or n - created - replaced
local e, r, k = count('enqueued', created), count('replaced', replaced), count('kept', kept)
-- A counter that starts here means a new queue, whatever a drain or other software has written to it before.
local begun = e == created or r == replaced or k == kept
-- include lib/wake
wake(soonest)
return { now, table.concat(letters), begun and 2 or (k or m > 0) and 1 or 0 }
