-- Puts jobs into pending.
-- ARGV   1 'keep' | 'replace', 2 wake channel, 3 poll interval ms, then for each job
--        id, when ('+ms' from now | ms since 1970), record ('' | JSON with tries, maxLost, ttl), payload
-- Reply  now, a letter for each job (c created, r replaced, k kept, d kept-dead), 1 if anything was written
-- Atomic because time and payload must come to be together, and an id must stand in one set only.
-- The first write may grow memory on purpose: on a full server the whole call is refused.
local mode, channel, poll = ARGV[1], ARGV[2], tonumber(ARGV[3])
local ids = {}
for i = 4, #ARGV, 4 do ids[#ids + 1] = ARGV[i] end
local inPending = redis.call('ZMSCORE', pending, unpack(ids))
local inActive = redis.call('ZMSCORE', active, unpack(ids))
local inDead = redis.call('ZMSCORE', dead, unpack(ids))

-- chosen: id → where its job stands in ARGV; of an id given twice the last one, as if in two calls.
local letters, chosen, old, superseded = {}, {}, {}, {}
local created, replaced = 0, 0
for i, id in ipairs(ids) do
  local there = inPending[i] or inActive[i] or inDead[i]
  -- An id without a payload is no job: enqueuing it mends it.
  local exists = chosen[id] or there and redis.call('HEXISTS', payload, id) == 1
  if exists and mode == 'keep' then
    letters[i] = not chosen[id] and inDead[i] and 'd' or 'k'
  else
    if there and not chosen[id] then old[#old + 1] = id end
    if inActive[i] and not chosen[id] then superseded[#superseded + 1] = id end
    letters[i], chosen[id] = exists and 'r' or 'c', 4 * i
    if exists then replaced = replaced + 1 else created = created + 1 end
  end
end

local times, payloads, records, dues, soonest = {}, {}, {}, {}, math.huge
for id, at in pairs(chosen) do
  local when = ARGV[at + 1]
  local due = dues[when]
  if not due then
    -- Many jobs share one delay, and turning a number into text costs as much as storing it.
    local ms = tonumber(when) + (string.sub(when, 1, 1) == '+' and now or 0)
    due = string.format('%.0f', ms)
    soonest, dues[when] = math.min(soonest, ms), due
  end
  times[#times + 1], times[#times + 2] = due, id
  payloads[#payloads + 1], payloads[#payloads + 2] = id, ARGV[at + 3]
  if ARGV[at + 2] ~= '' then records[#records + 1], records[#records + 2] = id, ARGV[at + 2] end
end

if #times > 0 then
  redis.call('ZADD', pending, unpack(times))
  redis.call('HSET', payload, unpack(payloads))
  if #old > 0 then redis.call('ZREM', dead, unpack(old)) redis.call('HDEL', meta, unpack(old)) end
  for _, id in ipairs(superseded) do
    local held = redis.call('HGET', lease, id)
    redis.call('ZREM', active, id)
    supersede(id, held)
  end
  if #records > 0 then redis.call('HSET', meta, unpack(records)) end
end
sample()
count('enqueued', created) count('replaced', replaced)
-- Of jobs that were all kept their counter is the only write, and the one that whoever wants them confirmed waits for.
local written = count('kept', #ids - created - replaced) or #times > 0
wake(channel, poll, soonest)
return { now, table.concat(letters), written and 1 or 0 }
