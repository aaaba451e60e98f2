-- Puts jobs into pending.
-- ARGV   1 'keep' | 'replace', 2 wake channel, 3 poll interval ms, 4 number of jobs, 5 of times, 6 of records, then all
--        ids, all payloads, times ('+ms' from now | ms since 1970), records ('' | JSON with tries, maxLost, ttl and
--        attributes as a:NAME). Times and records repeat if there are fewer than jobs; at least one of each
-- Reply  now, a letter for each job (c created, r replaced, k kept, d kept-dead), 1 if anything was written, 2 if the
--        queue may be new: the caller then lists it, because the list of queues is in another slot
-- Atomic because due time and payload must appear together, and an id must be in only one set.
-- The first write grows memory on purpose: so a full server rejects the whole call.
local ARGV, redis = ARGV, redis -- Locals are faster, and these are used for each job.
local mode, channel, poll = ARGV[1], ARGV[2], tonumber(ARGV[3])
local n, whens, records = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local bodyAt, whenAt, recordAt = 6 + n, 7 + 2 * n, 7 + 2 * n + whens

local function where(set)
  return size[set] > 0 and redis.call('ZMSCORE', set, unpack(ARGV, 7, bodyAt)) or {}
end
local inPending, inActive, inDead = where(pending), where(active), where(dead)

-- places: id → its index among the jobs to write. If an id is given twice, the last one is written, as by two calls.
local letters, places, old, superseded = {}, {}, {}, {}
local scores, bodies, metas, dues, soonest = {}, {}, {}, {}, math.huge
local m, created, replaced = 0, 0, 0
for i = 1, n do
  local id = ARGV[6 + i]
  local place, there = places[id], inPending[i] or inActive[i] or inDead[i]
  -- An id without a payload is not a job: enqueuing it repairs it.
  local exists = place or there and redis.call('HEXISTS', payload, id) == 1
  if exists and mode == 'keep' then
    letters[i] = not place and inDead[i] and 'd' or 'k'
  else
    if not place then
      place, m, places[id] = m + 1, m + 1, m + 1
      if there then old[#old + 1] = id end
      if inActive[i] then superseded[#superseded + 1] = id end
    end
    if exists then letters[i], replaced = 'r', replaced + 1 else letters[i], created = 'c', created + 1 end
    local when, record = ARGV[whenAt + (i - 1) % whens], ARGV[recordAt + (i - 1) % records]
    local due = dues[when]
    if not due then
      -- Many jobs share a delay, and formatting a number costs as much as storing it.
      local ms = tonumber(when) + (string.sub(when, 1, 1) == '+' and now or 0)
      due = string.format('%.0f', ms)
      soonest, dues[when] = math.min(soonest, ms), due
    end
    local at = 2 * place
    scores[at - 1], scores[at], bodies[at - 1], bodies[at] = due, id, id, ARGV[bodyAt + i]
    metas[id] = record ~= '' and record or nil
  end
end

if m > 0 then
  redis.call('ZADD', pending, unpack(scores))
  redis.call('HSET', payload, unpack(bodies))
  if #old > 0 then redis.call('ZREM', dead, unpack(old)) redis.call('HDEL', meta, unpack(old)) end
  for _, id in ipairs(superseded) do
    local held = redis.call('HGET', lease, id)
    redis.call('ZREM', active, id)
    supersede(id, held)
  end
  local fields = {}
  for id, record in pairs(metas) do fields[#fields + 1], fields[#fields + 2] = id, record end
  if #fields > 0 then redis.call('HSET', meta, unpack(fields)) end
end
sample()
-- If all jobs were kept, this counter is the only write, and the one that --durable waits for.
local kept = n - created - replaced
local e, r, k = count('enqueued', created), count('replaced', replaced), count('kept', kept)
-- A counter that starts here means a new queue, whatever a drain or other software has written to it before.
local begun = e == created or r == replaced or k == kept
wake(channel, poll, soonest)
return { now, table.concat(letters), begun and 2 or (k or m > 0) and 1 or 0 }
