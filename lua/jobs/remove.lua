-- Removes jobs without their receipts: those that some consumers hold are done, others cancelled. Perhaps puts a new
-- job into pending in place of one.
-- ARGV   1 how the names of those consumers begin ('': none), 2 'any' | 'active' (leaves all other jobs), 3 id of the
--        new job ('': none), 4 its payload, 5 time ('+ms' from now | ms since 1970), 6 record ('': none), then the ids;
--        with a new job one
-- Reply  now (0 in the reply for one job that is done), a letter for each job: a acked, c cancelled, m missing; k: the
--        new id is taken, and nothing was done. 1, or 2 if the queue may be new, as in enqueue.lua. With a new job,
--        'active' and the letter m, nothing was done
-- Atomic because a job must be removed completely, and it may change hands between a look and the removal; and one of
-- the old and the new job must be there, and never both.
-- With a new job, the first write grows memory on purpose: so a full server rejects the whole call.
-- include lib/queue
local isShort = #ARGV == 7 and ARGV[1] ~= '' and ARGV[3] == ''
  and not (uses and (string.find(uses, 'windows', 1, true) or string.find(uses, 'results', 1, true)))

-- One job that such a consumer holds: nearly every ack over HTTP.
local itsLease = isShort and call('HGET', lease, ARGV[7])
local nameAt = itsLease and string.match(itsLease, '^%S+ %S+ %S+ ()')
if nameAt and string.find(itsLease, ARGV[1], nameAt, true) == nameAt
  and string.find(itsLease, 'move:', nameAt, true) ~= nameAt then
  -- include lib/done
  removeHeld(ARGV[7], itsLease)
  return { 0, 'a', 1 }
end

-- A function: its many locals would cost each call that takes the short way.
local function removeMany()
  -- include lib/now
  -- include lib/stats
  -- include lib/wake
  -- include lib/leases
  -- include lib/windows
  -- include lib/results
  local by, all, newId, body, when, record = ARGV[1], ARGV[2] == 'any', unpack(ARGV, 3, 6)
  local ids, due, begun = { unpack(ARGV, 7) }, nil, false
  local leases = call('HMGET', lease, unpack(ids))
  call('ZCARD', active) call('ZCARD', pending) call('ZCARD', dead) -- Only for their types.
  if newId ~= '' then
    due = tonumber(when) and tonumber(when) + (string.sub(when, 1, 1) == '+' and now or 0)
    if not due then return redis.error_reply('ARGUMENT the time is not a number') end
    call('HLEN', meta) -- Only for its type.
    local isTaken = call('HEXISTS', payload, newId) == 1 or call('ZSCORE', active, newId) or call('ZSCORE', dead, newId)
      or isRemembered(newId)
    if isTaken then return { now, 'k', 1 } end
    if not (all or call('ZSCORE', active, ids[1]) and not isTransferred(leases[1])) then return { now, 'm', 1 } end
    -- If it is already pending, it is an orphan, whose record must not be taken for that of this job.
    if call('ZADD', pending, string.format('%d', due), newId) == 0 then call('HDEL', meta, newId) end
    call('HSET', payload, newId, body)
    if record ~= '' then call('HSET', meta, newId, record) end
    if windowIn(record) then openWindow() end
    if tell then tell('enqueued', newId, nil, nil, due) end
    if forgetDone then forgetDone({ newId }) end
    sample()
  end

  local letters, seen, held, ended, cancelled, superseded, endedBy = {}, {}, {}, {}, {}, {}, {}
  for i, id in ipairs(ids) do
    local text = leases[i]
    local at = text and by ~= '' and string.match(text, '^%S+ %S+ %S+ ()')
    letters[i] = 'm'
    -- An id that is given twice is gone by then.
    if not seen[id] then
      seen[id] = true
      if at and string.sub(text, at, at + #by - 1) == by and string.sub(text, at, at + 4) ~= 'move:' then
        letters[i], held[#held + 1], ended[#ended + 1], endedBy[#endedBy + 1] = 'a', id, id, text
      elseif call('ZSCORE', active, id) then
        -- What a growth is moving may be in its new partition already.
        if not isTransferred(text) then
          letters[i], held[#held + 1], cancelled[#cancelled + 1], superseded[#superseded + 1] = 'c', id, id, i
        end
      elseif all and (call('ZSCORE', pending, id) or call('ZSCORE', dead, id)) then
        letters[i], cancelled[#cancelled + 1] = 'c', id
      end
    end
  end
  local hasRecords = #ended > 0 and (hasWindows or tell or keepDone)
  local records = hasRecords and try('HMGET', meta, unpack(ended)) or {}

  -- Without a new job, these first writes free memory, so a full server also accepts the rest.
  if #held > 0 then call('ZREM', active, unpack(held)) end
  if #cancelled > #superseded then call('ZREM', pending, unpack(cancelled)) call('ZREM', dead, unpack(cancelled)) end
  for _, i in ipairs(superseded) do supersede(ids[i], leases[i]) end
  if #ended > 0 then call('HDEL', lease, unpack(ended)) end
  for name, gone in pairs({ acked = ended, cancelled = cancelled }) do
    if #gone > 0 then
      -- try: if these keys have another type, nothing in them belongs to the jobs.
      try('HDEL', payload, unpack(gone))
      try('HDEL', meta, unpack(gone))
      count(name, #gone)
    end
  end
  remember(ended, records)
  if keepDone then keepDone(ended, endedBy, records, {}, {}) end
  if tell then
    for i, id in ipairs(ended) do tell('acked', id, holderIn(endedBy[i]), attemptOf(records[i])) end
    for _, id in ipairs(cancelled) do tell('cancelled', id) end
  end
  -- A transfer may be copying remembered ids to the new partition.
  if hasWindows and #cancelled > 0 and not string.find(known, ' from ', 1, true) then
    call('ZREM', done, unpack(cancelled))
  end
  if due then
    begun = count('enqueued', 1) == 1
    wake(due)
  end
  freed(#held)
  return { now, table.concat(letters), begun and 2 or 1 }
end
return removeMany()
