-- Takes back expired leases, then takes due jobs, oldest due first, and drops those whose time to live has passed.
-- KEYS   after those of the queue, with ARGV 10: a stream
-- ARGV   1 most jobs to take, 2 receipt, 3 consumer, 4 most bytes of payloads and records, 5 lease ms (none or '': the
--        queue's, 0: remove them), 6 cutoff ms (none or '': now), 7 how many jobs the caller can start now (none or '':
--        all it takes, '-': it holds jobs that it has not begun), 8 '0': make no occurrences, 9 '1': note that the
--        queue has a drain, and take a sample if it is time, 10 with lease 0: move the jobs into the stream, as long as
--        none of its groups has so many entries that are not acked
-- Reply  state (more | idle | paused; limited | full: due jobs wait for the limits, unacked: for the stream's groups),
--        now, next ms (-1: none), how many leases expired, how many jobs were taken back, ids moved to dead, each with
--        its reason, the queue's tries, lease ms, traits (the sum of 1: the queue has limits, 2: texts, 4: nothing of
--        it is here, 8: it keeps results), then for each job id, due, its record (1: none), payload. With a stream
--        instead: how many jobs were moved, how many entries the slowest group has not acked, its name. For one job and
--        nothing else only: now, next ms, the queue's tries, lease ms, traits, then as above
--        If recurring jobs are due: occurs, now, then for each of the first its id, its occurrence and its header
-- Atomic because a job must be in only one set, and no two drains may take the same job.
-- include lib/queue
-- include lib/now
local limit, receipt, by, budget = tonumber(ARGV[1]), ARGV[2], ARGV[3], tonumber(ARGV[4])
local leaseMs, cutoff, stamp = tonumber(ARGV[5]), tonumber(ARGV[6]), string.format('%d', now)
if not (limit and limit >= 1 and budget and budget >= 1 and (leaseMs or 0) >= 0) then
  return redis.error_reply('ARGUMENT an argument of the script is not a number, or too small')
end
local maxLost, tries, queueTtl, traits, occurred = DEFAULT_MAX_LOST, DEFAULT_TRIES, nil, 0, math.huge
-- Of a queue with limits (docs/internals/limits.md): how many jobs this call may take, and a function for its end. That
-- gets how many were taken, and whether due jobs are left; returns the state and when to ask again, if the limits hold
-- them back.
local most, heldBack

if uses then
  local function has(feature) return string.find(uses, feature, 1, true) end
  if has('settings') then
    -- include lib/values
    local set = call('HMGET', config, 'paused', 'maxLost', 'ttl', 'tries', 'lease')
    local pausedUntil = tonumber(set[1])
    maxLost, queueTtl, tries = counted(set[2], maxLost), counted(set[3]), counted(set[4], tries)
    leaseMs = leaseMs or queueLease(set[5])
    if pausedUntil and pausedUntil > now then
      if by ~= '' then try('HSET', stats, 'drained', stamp) end -- The queue has a drain, even if it gets nothing.
      return { 'paused', now, pausedUntil < math.huge and pausedUntil or -1, 0, 0, {}, tries, leaseMs, 0 }
    end
  end
  if has('texts') then traits = 2 end
  if has('results') then traits = traits + 8 end
  if has('recurring') then
    -- The caller makes their jobs before it takes (docs/internals/recurring.md).
    occurred = tonumber(call('ZRANGE', occurs, '0', '0', 'WITHSCORES')[2]) or math.huge
    local upTo = math.min(now, cutoff or now)
    if occurred <= upTo and ARGV[8] ~= '0' then
      local first = call('ZRANGEBYSCORE', occurs, '-inf', string.format('%.0f', upTo), 'WITHSCORES', 'LIMIT', '0',
        MAX_OCCURRENCES)
      local reply = { 'occurs', now }
      for i = 1, #first, 2 do
        local header = string.match(call('HGET', every, first[i]) or '', '^[^\n]*\n([^\n]*)') or ''
        reply[#reply + 1], reply[#reply + 2], reply[#reply + 3] = first[i], first[i + 1], header
      end
      return reply
    end
    -- The caller could not make them: it need not ask again at once.
    if occurred <= upTo then occurred = now + pollMs end
  end
  if has('rate') or has('maxActive') then
    local function positive(text)
      local n = tonumber(text)
      return n and n > 0 and n <= 1e15 and n or nil
    end
    local set = call('HMGET', config, 'rate', 'burst', 'maxActive')
    local asked, start, places = limit, tonumber(ARGV[7]) or math.huge, positive(set[3])
    if places and leaseMs == 0 then
      return redis.error_reply('LIMITED the queue has max-active, and jobs without a lease cannot be counted')
    elseif places and ARGV[7] == '-' then
      return redis.error_reply('LIMITED the queue has max-active, and lines in a pipe are active before their turn')
    end
    if places then places = math.max(0, places - call('ZCOUNT', active, '(' .. stamp, '(inf')) end
    local jobs, ms = string.match(set[1] or '', '^(%S+) (%S+)$')
    -- Tokens for each ms.
    local rate = positive((tonumber(jobs) or 0) / (tonumber(ms) or 1))
    local burst, tokens, bucketAt, ticket
    if rate then
      burst = math.max(1, positive(set[2]) or rate * 100)
      local had, at, last = string.match(try('HGET', stats, 'bucket') or '', '^([%d.]+) (%d+) (%d+)$')
      -- Without the field the bucket is full. Its time is in the future if the clock has gone back.
      had, last, bucketAt = tonumber(had) or burst, tonumber(last) or 0, tonumber(at) or now
      tokens = math.min(burst, had + math.max(0, now - bucketAt) * rate)
      -- A full bucket: those that have the last tickets did not come.
      ticket = tokens < burst and last <= now + pollMs and last or now
    end
    if places or rate then
      most = math.max(0, math.min(limit, start, places or limit, math.floor(tokens or limit)))
      -- Those whose time to live has passed cost no token: look at some more.
      limit = math.min(limit, most + 50)
      heldBack = function(n, isLeft, firstEnd)
        local left, state, at = tokens and tokens - n, nil, nil
        -- A caller that can start no more may be busy when its turn comes, and without a burst that token is lost: it
        -- gets no turn, and asks when a job of its own has ended.
        local isBusy = start == n and (n == 0 or left and left < 1 and burst < 2)
        if isLeft and (places == n or isBusy) then
          state, at = 'full', math.ceil(math.max(now, math.min(firstEnd, now + pollMs)))
        elseif isLeft and left and left < 1 then
          -- Each caller that waits gets a later time than the one before it: when the tokens it will take are there.
          local wanted = math.max(1, math.min(asked, start, burst / 2, rate * 50))
          ticket = math.min(math.max(ticket, now - left / rate) + wanted / rate, now + pollMs)
          ticket = math.max(ticket, now + (1 - left) / rate)
          state, at = 'limited', math.ceil(ticket)
        end
        if left and (n > 0 or state or bucketAt > now) then
          call('HSET', stats, 'bucket', string.format('%.9f %d %.0f', left, now, ticket))
        end
        return state, at
      end
    end
  end
end
leaseMs = leaseMs or DEFAULT_LEASE_MS

local back = tonumber(call('ZRANGE', active, '0', '0', 'WITHSCORES')[2]) or math.huge
local id, dueAt, _, second = unpack(call('ZRANGE', pending, '0', '1', 'WITHSCORES'))
local isDue = id and tonumber(dueAt) <= now
second = tonumber(second) or math.huge

-- Limits that let no job through: nearly every call of a drain that waits for them.
if most == 0 and isDue and back > now and not (cutoff or ARGV[9]) then
  local state, at = heldBack(0, true, back)
  return { state, now, at, 0, 0, {}, tries, leaseMs, traits + 1 }
end

-- The counter of a delivery that was so late, ms.
local function bucket(late)
  return late <= 5 and 'late:5' or late <= 10 and 'late:10' or late <= 50 and 'late:50' or late <= 100 and 'late:100'
    or late <= 500 and 'late:500' or late <= 1000 and 'late:1000' or late <= 5000 and 'late:5000'
    or late <= 10000 and 'late:10000' or late <= 60000 and 'late:60000' or late <= 600000 and 'late:600000'
    or late <= 3600000 and 'late:3600000' or 'late:inf'
end

-- Whether a take need not decode a record: its job has not expired, and has no window that the layout does not mention.
-- No other place of a record can have these texts: quotes inside of texts are escaped.
local function isSimple(text)
  local function has(name) return string.find(text, name, 1, true) end
  if has('"once"') and not (uses and string.find(uses, 'windows', 1, true)) then return false end
  if not has('"ttl"') then return true end
  local ttl = tonumber(string.match(text, '"ttl":(%d+)[,}]'))
  local first = tonumber(has('"first"') and string.match(text, '"first":([%d.]+)[,}]') or dueAt)
  return ttl and first and first + ttl >= now
end

-- One job: nearly every call when jobs are spread over time, or taken one by one. From time to time a caller asks for
-- the long way, which notes that the queue has a drain, and takes a sample.
local isAlone = isDue and most ~= 0 and ((most or limit) == 1 or second > now) and leaseMs > 0 and back > now
  and not (cutoff or queueTtl or ARGV[9])
local onlyBody = isAlone and string.find(id, '^[\1-\127]+$') and call('HGET', payload, id)
local itsRecord = onlyBody and call('HGET', meta, id)
if onlyBody and (not itsRecord or isSimple(itsRecord)) then
  call('ZCARD', dead) -- Only for its type: a job that could not be settled must not be taken.
  local late = now - dueAt
  call('HDEL', lease, id) -- There is none. A first write that frees memory: so a full server accepts the others, too.
  call('HSET', lease, id, receipt .. ' ' .. dueAt .. ' ' .. stamp .. ' ' .. by)
  call('ZADD', active, string.format('%d', now + leaseMs), id)
  call('ZREMRANGEBYRANK', pending, '0', '0') -- Last, so whatever fails, no job is lost.
  try('HINCRBY', stats, 'delivered', '1')
  try('HINCRBY', stats, bucket(late), '1')
  if late >= 1 and late <= 1e15 then try('HINCRBY', stats, 'late:sum', string.format('%d', late)) end
  if uses and string.find(uses, 'events', 1, true) then
    -- include lib/events
    tell('delivered', id, by, attemptOf(itsRecord), dueAt)
  end
  local ends = math.min(back, now + leaseMs)
  if most then
    traits = traits + 1
    local state, at = heldBack(1, second <= now, ends)
    if state then
      return { state, now, at, 0, 0, {}, tries, leaseMs, traits, id, dueAt, itsRecord or 1, onlyBody }
    end
  end
  local soonest = math.ceil(math.max(0, math.min(second, ends, occurred)))
  return { now, soonest, tries, leaseMs, traits, id, dueAt, itsRecord or 1, onlyBody }
end

-- A function: its many locals would cost each call that takes the short way.
local function drainMany()
  -- include lib/stats
  -- Only for their types: a job that could not be settled must not be taken.
  call('ZCARD', dead)
  if uses then call('ZCARD', done) end
  local payloads, leases, hasMeta = call('HLEN', payload), call('HLEN', lease), call('HLEN', meta) > 0
  local toStream, room
  if ARGV[10] then
    -- include lib/stream
    toStream = { trim = trim, append = append, slowest = slowest }
  end
  -- Do not create a queue that does not exist.
  if occurred == math.huge and call('EXISTS', pending, active, stats) == 0 then
    return { 'idle', now, -1, 0, 0, {}, tries, leaseMs, uses and traits or 4 }
  end
  -- A slot of a cluster that was half migrated when a failover came: its jobs would be taken for orphans.
  if payloads == 0 and call('EXISTS', pending, active) > 0 and not try('CLUSTER', 'SLOTS').err then
    return redis.error_reply('TRYAGAIN ' .. payload .. ' is missing: its slot was not moved whole')
  end
  -- Notes that the queue has a drain. These are the first writes: HDEL frees memory, so a full server also accepts the
  -- rest, and a user without permission for these two is refused before any job moves. A caller without a name only
  -- takes leases back, and is no drain.
  local drained = by ~= '' and stamp or call('HGET', stats, 'drained')
  call('HDEL', stats, 'drained')
  if drained then call('HSET', stats, 'drained', drained) end
  sample()
  local unacked, isCut
  if toStream then
    unacked, isCut = toStream.trim()
    room = math.max(0, tonumber(ARGV[10]) - unacked)
  end
  local function first(set) return tonumber(call('ZRANGE', set, '0', '0', 'WITHSCORES')[2]) or math.huge end
  if most then traits = traits + 1 end
  if uses and string.find(uses, 'results', 1, true) then
    -- include lib/results
    sweepDone(100)
  end
  if not (isDue or back <= now) then
    -- Nothing to do: nearly every call of a drain that waits.
    if most then heldBack(0, false, back) end
    local next = math.min(tonumber(dueAt) or math.huge, back, occurred)
    return { 'idle', now, next < math.huge and math.ceil(next) or -1, 0, 0, {}, tries, leaseMs, traits }
  end

  -- include lib/records
  local lost, died = {}, {}
  limit, cutoff = math.min(limit, MAX_CALL), math.min(now, cutoff or now)

  -- Takes back expired leases; jobs that were lost too often die. Limited, so that many of them do not delay due jobs.
  if back <= now then
    -- include lib/leases
    -- include lib/growth
    lost = call('ZRANGEBYSCORE', active, '-inf', now, 'LIMIT', '0', math.min(limit, 200))
    local held, records = call('HMGET', lease, unpack(lost)), call('HMGET', meta, unpack(lost))
    for i, one in ipairs(lost) do
      local rec = read(records[i])
      rec.losses = counted(rec.losses, 0) + 1
      if tell then tell('lost', one, holderIn(held[i]), counted(rec.failures, 0) + rec.losses, dueOf(held[i])) end
      if isSpent(rec, rec.losses, rec.maxLost, maxLost) then
        bury(one, rec, 'lost', holderIn(held[i])) count('dead', 1)
        died[#died + 1], died[#died + 2] = one, 'lost'
      else
        call('ZADD', pending, string.format('%.17g', dueOf(held[i])), one)
        write(one, rec)
      end
    end
    call('ZREM', active, unpack(lost))
    call('HDEL', lease, unpack(lost))
    countReturned(lost)
    local error, n = 'lease expired', #lost
    local last = { error = error, by = string.match(held[n] or '', '^%S+ %S+ %S+ (.*)') }
    noteFailures(n, { error, [error] = n }, last, now)
    hasMeta = true
  end

  if room then limit = math.min(limit, room) end
  -- A set of over 2,000,000 is not in the CPU cache.
  if limit > 100 and call('ZCARD', pending) > 2000000 then limit = 100 end
  local found, ids, dues = call('ZRANGEBYSCORE', pending, '-inf', cutoff, 'WITHSCORES', 'LIMIT', '0', limit), {}, {}
  for i = 1, #found / 2 do ids[i], dues[i] = found[2 * i - 1], found[2 * i] end
  local taken, odd, gone, leaseEnds, leased, n, expired = {}, {}, {}, {}, {}, 0, 0
  -- Format once, not for each job: formatting a number costs as much as storing it.
  local ends = string.format('%d', now + leaseMs)
  local before, after = receipt .. ' ', ' ' .. stamp .. ' ' .. by
  local bytes, seen, slice, hasOwnWindow = 0, 0, 1, false
  local full = most == 0
  -- Check all ids at once: that costs less than checking each.
  local allGood = isId(table.concat(ids, ' '))
  while seen < #ids and not full do
    -- Slices grow slowly: payloads that exceed the budget are read in vain, so read few until their size is known.
    local upto = math.min(seen + slice, #ids)
    local bodies = call('HMGET', payload, unpack(ids, seen + 1, upto))
    local records = hasMeta and call('HMGET', meta, unpack(ids, seen + 1, upto)) or {}
    for i, body in ipairs(bodies) do
      local record, length, rec = records[i], body and #body or 0, nil
      if record then
        rec, length = read(record), length + #record
        hasOwnWindow = hasOwnWindow or rec.once
      end
      if n == most or n > 0 and bytes + length > budget then full = true break end
      seen = seen + 1
      local one, due, ttl = ids[seen], dues[seen], rec and counted(rec.ttl) or queueTtl
      local reason = not body and 'orphaned' or not (allGood and one ~= '' or isId(one)) and 'bad id'
      if reason then
        odd[#odd + 1], dues[seen] = { one, rec or {}, reason }, false
      elseif ttl and (rec and tonumber(rec.first) or tonumber(due)) + ttl < now then
        if tell then tell('expired', one, nil, nil, due) end
        gone[#gone + 1], expired, dues[seen] = one, expired + 1, false
      else
        -- Counted indexes: `#` would search for the end each time.
        local at, twice = n * 4, 2 * n
        n, bytes = n + 1, bytes + length
        leaseEnds[twice + 1], leased[twice + 1], taken[at + 1] = ends, one, one
        leaseEnds[twice + 2], leased[twice + 2], taken[at + 2] = one, before .. due .. after, due
        taken[at + 3], taken[at + 4] = record or 1, body
        if leaseMs == 0 then gone[#gone + 1] = one end
      end
    end
    slice = math.min(slice * 2, 32)
  end

  if toStream then toStream.append(taken) end
  for i = 1, tell and n or 0 do
    local record = taken[i * 4 - 1]
    tell(leaseMs == 0 and 'removed' or 'delivered', taken[i * 4 - 3], by, attemptOf(record), taken[i * 4 - 2])
  end
  if n > 0 and leaseMs > 0 then
    -- A long value makes a hash table of a new hash, and a long member a skip list of a new set: in Redis's compact
    -- encoding, each of many entries is searched for.
    local long = leases == 0 and n > 16 and string.rep(' ', 65)
    -- A user who may not run ZREM is refused before a job moves.
    if long then call('ZREM', active, long) call('ZADD', active, ends, long) end
    if long then leased[2 * n + 1], leased[2 * n + 2] = '', long end
    call('ZADD', active, unpack(leaseEnds))
    call('HSET', lease, unpack(leased))
    if long then call('HDEL', lease, '') call('ZREM', active, long) end
  end
  for _, job in ipairs(odd) do
    bury(unpack(job)) count(job[3] == 'orphaned' and job[3] or 'dead', 1)
    died[#died + 1], died[#died + 2] = job[1], job[3]
  end
  if seen > 0 then call('ZREMRANGEBYRANK', pending, '0', seen - 1) end -- Last, so whatever fails, no job is lost.
  if #gone > 0 or hasOwnWindow and not (uses and string.find(uses, 'windows', 1, true)) then
    -- include lib/windows
    -- Other software may have written that record.
    if hasOwnWindow then openWindow() end
    if #gone > 0 then remember(gone) end
    drop(gone)
  end

  -- Counts deliveries by lateness. dues[1] … dues[seen] are ascending due times, false for a job that was not
  -- delivered. The jobs of one call fall into few buckets, so a binary search finds the end of each.
  local kept, sum, from = n == seen and dues or {}, now * n, 1
  for i = 1, n < seen and seen or 0 do kept[#kept + 1] = dues[i] or nil end
  for i = 1, n do sum = sum - kept[i] end
  count('late:sum', math.floor(sum))
  while from <= n do
    local name, low, high = bucket(now - kept[from]), from + 1, n + 1
    if name == bucket(now - kept[n]) then low = high end
    while low < high do
      local middle = math.floor((low + high) / 2)
      if bucket(now - kept[middle]) == name then low = middle + 1 else high = middle end
    end
    count(name, low - from)
    from = low
  end
  count('delivered', n) count('removed', leaseMs == 0 and n or 0)
  count('expired', expired) count('lost', #lost)

  -- What is left, and when to ask again.
  local due = first(pending)
  back = first(active)
  local state, soonest = (due <= cutoff or back <= now) and 'more' or 'idle', math.min(due, back, occurred)
  soonest = soonest < math.huge and math.ceil(soonest) or -1
  if n == room and due <= cutoff and back > now and not isCut then state, soonest = 'unacked', now end
  if most then
    local held, at = heldBack(n, due <= cutoff, back)
    state, soonest = held or state, at or soonest
  end
  if toStream then taken = { n, unacked + n, toStream.slowest } end
  return { state, now, soonest, expired, #lost, died, tries, leaseMs, traits, unpack(taken) }
end
return drainMany()
