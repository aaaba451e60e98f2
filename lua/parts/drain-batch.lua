-- The rest of drain.lua: many jobs, none, or one that is not plain.
-- include lib/ids
-- include lib/records
-- in a partition: -- include lib/done
-- Only for their types, as in drain.lua.
call('ZCARD', dead)
local payloads, leases, hasMeta = call('HLEN', payload), call('HLEN', lease), call('HLEN', meta) > 0
-- Do not create a queue that does not exist.
-- in a partition: if occurred == math.huge then
if call('EXISTS', pending, active, stats) == 0 then return { 'idle', now, -1, 0, 0, {}, tries, leaseMs } end
-- in a partition: end
-- A slot of a cluster that was half migrated when a failover came: its jobs would be taken for orphans.
if payloads == 0 and call('EXISTS', pending, active) > 0 and not try('CLUSTER', 'SLOTS').err then
  return redis.error_reply('TRYAGAIN ' .. payload .. ' is missing: its slot was not moved whole')
end
-- include lib/count
local lost, died, odd = {}, {}, {}
limit, cutoff = math.min(limit, 250), math.min(now, cutoff or now)
-- include parts/drained
if back <= now then
  -- include parts/take-back
  hasMeta = true
end

-- A set of over 2,000,000 is not in the CPU cache.
if limit > 100 and call('ZCARD', pending) > 2000000 then limit = 100 end
local found, ids, dues = call('ZRANGEBYSCORE', pending, '-inf', cutoff, 'WITHSCORES', 'LIMIT', '0', limit), {}, {}
for i = 1, #found / 2 do ids[i], dues[i] = found[2 * i - 1], found[2 * i] end
local reply, gone, leaseEnds, leased, n, expired = {}, {}, {}, {}, 0, 0
-- Format once, not for each job: formatting a number costs as much as storing it.
local ends = string.format('%d', now + leaseMs)
local before, after = receipt .. ' ', ' ' .. stamp .. ' ' .. by
local bytes, seen, slice, full = 0, 0, 1, false
-- in a partition: full = most == 0
-- Check all ids at once: that costs less than checking each.
local allGood = isId(table.concat(ids, ' '))
while seen < #ids and not full do
  -- Slices grow slowly: payloads that exceed the budget are read in vain, so read few until their size is known.
  local upto = math.min(seen + slice, #ids)
  local bodies = call('HMGET', payload, unpack(ids, seen + 1, upto))
  local records = hasMeta and call('HMGET', meta, unpack(ids, seen + 1, upto)) or {}
  for i, body in ipairs(bodies) do
    local record, length, rec, sent = records[i], body and #body or 0, nil, nil
    if record then
      rec = read(record)
      if leaseMs == 0 or rec.deliveries or rec.ttl or rec.created or string.find(record, '"a:', 1, true) then
        sent, length = record, length + #record
      end
    end
    if n > 0 and bytes + length > budget then full = true break end
    -- in a partition: if n == most then full = true break end
    seen = seen + 1
    local id, due, ttl = ids[seen], dues[seen], rec and counted(rec.ttl) or queueTtl
    local reason = not body and 'orphaned' or not (allGood and id ~= '' or isId(id)) and 'bad id'
    if reason then
      odd[#odd + 1], dues[seen] = { id, rec or {}, reason }, false
    elseif ttl and (rec and tonumber(rec.first) or tonumber(due)) + ttl < now then
      gone[#gone + 1], expired, dues[seen] = id, expired + 1, false
    else
      -- Counted indexes: `#` would search for the end each time.
      local at, twice = n * 4, 2 * n
      n, bytes = n + 1, bytes + length
      leaseEnds[twice + 1], leased[twice + 1], reply[at + 1] = ends, id, id
      leaseEnds[twice + 2], leased[twice + 2], reply[at + 2] = id, before .. due .. after, due
      reply[at + 3], reply[at + 4] = rec and countsOf(rec, tries, sent) or 1, body
      if leaseMs == 0 then gone[#gone + 1] = id end
    end
  end
  slice = math.min(slice * 2, 32)
end

-- include parts/leased
for _, job in ipairs(odd) do
  bury(unpack(job)) count(job[3] == 'orphaned' and job[3] or 'dead', 1)
  died[#died + 1], died[#died + 2] = job[1], job[3]
end
if seen > 0 then call('ZREMRANGEBYRANK', pending, '0', seen - 1) end -- Last, so whatever fails, no job is lost.
-- in a partition: remember(gone)
drop(gone)
-- include parts/count-late
count('delivered', n) count('removed', leaseMs == 0 and n or 0)
count('expired', expired) count('lost', #lost)
-- include parts/drain-reply
