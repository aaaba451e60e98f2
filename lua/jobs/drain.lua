-- Takes back expired leases, then takes due jobs, oldest due first, and drops those whose time to live has passed.
-- ARGV   1 most jobs to take, 2 lease ms ('': the queue's, 0: remove them), 3 receipt, 4 consumer,
--        5 cutoff ms ('': now), 6 most bytes of payloads and records
-- Reply  state (more | idle | paused), now, next ms (-1: none), counts expired and taken back, ids moved to dead, each
--        with its reason, the queue's tries, lease ms, then for each job id, due, counts (1: first attempt; otherwise
--        attempt, failures and tries as text; in a list with the record, if it has attributes or the lease is 0), payload
-- Atomic because a job must be in only one set, and no two drains may take the same job.
if not (atLeast(1, ARGV[1]) and (ARGV[2] == '' or atLeast(0, ARGV[2])) and atLeast(1, ARGV[6])) then return BAD end
local limit = math.min(tonumber(ARGV[1]), size[pending] > 2000000 and 100 or 250) -- Such a large set is not in the CPU cache.
local receipt, by = ARGV[3], ARGV[4]
local cutoff, budget = math.min(now, tonumber(ARGV[5]) or now), tonumber(ARGV[6])
local settings = redis.call('HMGET', config, 'paused', 'maxLost', 'ttl', 'tries', 'lease')
local pausedUntil, maxLost, queueTtl = tonumber(settings[1]), counted(settings[2], 20), counted(settings[3])
local tries, leaseMs = counted(settings[4], 5), tonumber(ARGV[2]) or queueLease(settings[5])
if pausedUntil and pausedUntil > now then
  redis.pcall('HSET', stats, 'drained', now) -- The queue has a drain, even if it gets nothing.
  return { 'paused', now, pausedUntil < math.huge and pausedUntil or -1, 0, 0, {}, tries, leaseMs }
end
-- Do not create a queue that does not exist.
if size[pending] + size[active] + size[stats] == 0 then return { 'idle', now, -1, 0, 0, {}, tries, leaseMs } end

-- First write: it frees memory, so a full server also accepts the rest.
redis.call('HDEL', stats, 'drained') redis.call('HSET', stats, 'drained', now) sample()

-- Limited, so that many expired leases do not delay due jobs.
local lost, died = redis.call('ZRANGEBYSCORE', active, '-inf', now, 'LIMIT', 0, math.min(limit, 200)), {}
if #lost > 0 then
  local leases, records = redis.call('HMGET', lease, unpack(lost)), redis.call('HMGET', meta, unpack(lost))
  redis.call('ZREM', active, unpack(lost))
  redis.call('HDEL', lease, unpack(lost))
  for i, id in ipairs(lost) do
    local rec = read(records[i])
    rec.losses = counted(rec.losses, 0) + 1
    if rec.losses >= counted(rec.maxLost, maxLost) then
      bury(id, rec, 'lost') count('dead', 1)
      died[#died + 1], died[#died + 2] = id, 'lost'
    else
      redis.call('ZADD', pending, string.format('%.17g', dueOf(leases[i])), id)
      write(id, rec)
    end
  end
end

local found, ids, dues = redis.call('ZRANGEBYSCORE', pending, '-inf', cutoff, 'WITHSCORES', 'LIMIT', 0, limit), {}, {}
for i = 1, #found / 2 do ids[i], dues[i] = found[2 * i - 1], found[2 * i] end
local reply, taken, gone, leaseEnds, leased, n = {}, {}, {}, {}, {}, 0
-- Format once, not for each job: formatting a number costs as much as storing it.
local ends, before, after = string.format('%.0f', now + leaseMs), receipt .. ' ', ' ' .. string.format('%.0f', now) .. ' ' .. by
local hasMeta, bytes, seen, slice, full = redis.call('EXISTS', meta) == 1, 0, 0, 1, false
-- Check all ids at once: that costs less than checking each.
local allGood = isId(table.concat(ids, ' '))
while seen < #ids and not full do
  -- Slices grow slowly: payloads that exceed the budget are read in vain, so read few until their size is known.
  local upto = math.min(seen + slice, #ids)
  local bodies = redis.call('HMGET', payload, unpack(ids, seen + 1, upto))
  local records = hasMeta and redis.call('HMGET', meta, unpack(ids, seen + 1, upto)) or {}
  for i, body in ipairs(bodies) do
    local sent = records[i] and (leaseMs == 0 or string.find(records[i], '"a:', 1, true)) and records[i]
    local length = #(body or '') + #(sent or '')
    if n > 0 and bytes + length > budget then full = true break end
    seen = seen + 1
    local id, due, rec = ids[seen], dues[seen], records[i] and read(records[i])
    local ttl = rec and counted(rec.ttl) or queueTtl
    local reason = not body and 'orphaned' or not (allGood and id ~= '' or isId(id)) and 'bad id'
    if reason then
      bury(id, rec or {}, reason) count(reason == 'orphaned' and reason or 'dead', 1)
      died[#died + 1], died[#died + 2], dues[seen] = id, reason, false
    elseif ttl and (rec and tonumber(rec.first) or tonumber(due)) + ttl < now then
      gone[#gone + 1], dues[seen] = id, false
    else
      -- Counted indexes: `#` would search for the end each time.
      local at, twice = n * 4, 2 * n
      n, bytes = n + 1, bytes + length
      taken[n], leaseEnds[twice + 1], leased[twice + 1], reply[at + 1] = id, ends, id, id
      leaseEnds[twice + 2], leased[twice + 2], reply[at + 2] = id, before .. due .. after, due
      reply[at + 3], reply[at + 4] = rec and countsOf(rec, tries, sent) or 1, body
    end
  end
  slice = math.min(slice * 2, 32)
end
if seen > 0 then redis.call('ZREMRANGEBYRANK', pending, 0, seen - 1) end
if n > 0 and leaseMs > 0 then redis.call('ZADD', active, unpack(leaseEnds)) redis.call('HSET', lease, unpack(leased)) end
drop(gone) drop(leaseMs == 0 and taken or {})
countLate(dues, seen, n) count('delivered', n) count('removed', leaseMs == 0 and n or 0)
count('expired', #gone) count('lost', #lost)
local function first(set) return tonumber(redis.call('ZRANGE', set, 0, 0, 'WITHSCORES')[2]) or math.huge end
local due, back = first(pending), first(active)
local state, soonest = (due <= cutoff or back <= now) and 'more' or 'idle', math.min(due, back)
soonest = soonest < math.huge and math.ceil(soonest) or -1
return { state, now, soonest, #gone, #lost, died, tries, leaseMs, unpack(reply) }
