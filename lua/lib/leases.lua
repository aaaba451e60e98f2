-- include lib/queue
-- include lib/now
-- Reads and writes leases. Nothing that other software has written there may stop the queue.

-- Whether a growth of the queue is moving the job that has this lease: only names of partitions have a slash.
local function isTransferred(held)
  return string.find(held or '', ' move:%S+/%d+ ') ~= nil
end

-- Ends the lease of a job that was replaced or cancelled. The field 'receipt id' tells its holder so; of a move, whose
-- process may be dead for long, it says that as well.
local function supersede(id, held)
  call('HDEL', lease, id)
  if not held then return end
  local isMove = string.find(held, ' move:%S+ [pd] %S+$')
  call('HSET', lease, string.match(held, '^%S*') .. ' ' .. id, string.format(isMove and '%.0f moved' or '%.0f', now))
end

-- The due time in a lease; now if there is none, or none that is valid as a score and in a record.
local function dueOf(held)
  local n = tonumber(held and string.match(held, '^%S+ (%S+)'))
  return n and math.abs(n) <= 1e15 and n or now
end

-- Checks the leases of the jobs ARGV[first], ARGV[first + step] … (an id, then its receipt). Returns the ids, a letter
-- for each (h held, s superseded, l lost) and the leases. A superseded lease is known by the field 'receipt id'.
local function checkLeases(first, step)
  local ids, letters, last, prefix = {}, {}, nil, nil
  for i = first, #ARGV, step do ids[#ids + 1] = ARGV[i] end
  local leases = call('HMGET', lease, unpack(ids))
  for i, id in ipairs(ids) do
    local receipt = ARGV[first + (i - 1) * step + 1]
    -- Most jobs of a call have the same receipt. A find makes no new text.
    if receipt ~= last then last, prefix = receipt, receipt .. ' ' end
    if leases[i] and string.find(leases[i], prefix, 1, true) == 1 then
      letters[i] = 'h'
    else
      letters[i] = call('HEXISTS', lease, receipt .. ' ' .. id) == 1 and 's' or 'l'
    end
  end
  return ids, letters, leases
end

-- Notes `failed` more failures in a row: as long as the counters of what is done stay as they were, so that a job that
-- succeeds costs nothing. `kinds` of their errors in the order of their first failures, and how many each has: of a row
-- the first ones are counted, then all others as one. `last`: error and holder of the last failure. `again`: when the
-- last of them is tried again; 0: none is.
local function noteFailures(failed, kinds, last, again)
  local set = try('HMGET', stats, 'acked', 'removed', 'failures')
  if failed == 0 or set.err then return end
  local ended, size = (tonumber(set[1]) or 0) + (tonumber(set[2]) or 0), 0
  local good, row = pcall(cjson.decode, set[3] or '')
  if not (good and type(row) == 'table' and row.done == ended and tonumber(row.n) and type(row.kinds) == 'table') then
    row = { done = ended, since = now, n = 0, again = 0, kinds = {} }
  end
  for _ in pairs(row.kinds) do size = size + 1 end
  for _, kind in ipairs(kinds) do
    local n = kinds[kind]
    if not row.kinds[kind] then
      if size >= 8 then kind = '*' else size = size + 1 end
    end
    row.kinds[kind] = (tonumber(row.kinds[kind]) or 0) + n
  end
  row.n, row.at, row.error, row.by = row.n + failed, now, last.error, last.by
  row.again = math.max(tonumber(row.again) or 0, again)
  try('HSET', stats, 'failures', cjson.encode(row))
end
