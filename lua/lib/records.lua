-- include lib/queue
-- include lib/now
-- include lib/values
-- include lib/events
-- Reads and writes the records of single jobs, in meta. Nothing that other software has written there may stop the
-- queue.

-- A job's record. Ignores everything that cannot be read, or could not be written again.
local function read(text)
  local good, found = pcall(cjson.decode, text or '{}')
  local rec = {}
  for name, value in pairs(good and type(found) == 'table' and found or {}) do
    local kind = type(value)
    local plain = kind == 'string' or kind == 'boolean' or kind == 'number' and math.abs(value) <= 1e15
    if type(name) == 'string' and plain then rec[name] = value end
  end
  return rec
end

local function write(id, rec)
  call('HSET', meta, id, cjson.encode(rec))
end

-- `by`: who held it, if anybody did.
local function bury(id, rec, reason, by)
  rec.reason = reason
  call('ZADD', dead, now, id)
  write(id, rec)
  if tell then
    -- A release counts as no failure.
    local attempts = counted(rec.failures, 0) + counted(rec.losses, 0) + (reason == 'released' and 1 or 0)
    tell('dead', id, by, attempts, nil, reason, rec.error)
  end
end

-- Removes the payloads and records of jobs.
local function drop(ids)
  if #ids == 0 then return end
  call('HDEL', payload, unpack(ids))
  call('HDEL', meta, unpack(ids))
end

-- Whether a job is dead that has just failed or been lost, for the n-th time: by its own limit of these, or of both. A
-- limit of both (deliveries) stands in place of the limit of the queue.
local function isSpent(rec, n, own, ofQueue)
  local both = counted(rec.deliveries)
  return n >= counted(own, both or ofQueue) or both and counted(rec.failures, 0) + counted(rec.losses, 0) >= both
end
