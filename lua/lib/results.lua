-- include lib/queue
-- include lib/now
-- include lib/events
-- Keeps what is known of jobs that are done (docs/reference/keys.md#finished-and-results). keepDone is nil if the queue
-- keeps nothing. try: after the first write nothing may fail.
local keepDone, sweepDone, forgetDone
if uses and string.find(uses, 'results', 1, true) then
  local set = call('HMGET', config, 'keepDone', 'maxDone')
  local keepMs, maxDone = tonumber(set[1]) or 0, tonumber(set[2]) or DEFAULT_MAX_DONE
  local finished = string.sub(pending, 1, -8) .. 'finished'
  local results = string.sub(pending, 1, -8) .. 'results'

  -- Removes up to `most` jobs that were done too long ago, or are too many.
  sweepDone = function(most)
    local size, old = try('ZCARD', finished), try('ZCOUNT', finished, '-inf', string.format('%.0f', now - keepMs))
    if type(size) ~= 'number' or type(old) ~= 'number' then return end
    local n = math.min(math.max(old, size - maxDone), most)
    local gone = n > 0 and try('ZRANGE', finished, 0, n - 1) or {}
    if #gone == 0 then return end
    try('ZREM', finished, unpack(gone))
    try('HDEL', results, unpack(gone))
  end

  -- There are new jobs with these ids: what came out of earlier ones would be taken for their results.
  forgetDone = function(ids)
    try('ZREM', finished, unpack(ids))
    try('HDEL', results, unpack(ids))
  end

  -- Keeps jobs that end now. `leases` and `records` are theirs. `took` and `said`: how long their handlers ran, and
  -- what came out ('': nothing).
  keepDone = function(ids, leases, records, took, said)
    local times, told = {}, {}
    for i, id in ipairs(ids) do
      local _, due, since = string.match(leases[i] or '', '^(%S+) (%S+) (%S+)')
      local record = type(records[i]) == 'string' and records[i] or ''
      local first = tonumber(string.match(record, '"first":([%d.]+)[,}]') or due) or now
      times[#times + 1], times[#times + 2] = string.format('%.0f', now), id
      told[#told + 1], told[#told + 2] = id, cjson.encode({
        due = math.floor(first), attempts = attemptOf(record), by = holderIn(leases[i]) or '',
        took = tonumber(took[i]) or math.max(0, now - (tonumber(since) or now)),
        result = said[i] and said[i] ~= '' and said[i] or nil,
      })
    end
    if #times == 0 then return end
    try('ZADD', finished, unpack(times))
    try('HSET', results, unpack(told))
    sweepDone(#times + 100)
  end
end
