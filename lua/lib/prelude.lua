-- Precedes every script, with records.lua. Names the keys, which have the same order in every script, and reads the
-- clock. Rejects, before the first write, whatever would fail later: Redis does not undo the writes of a failed script.
local pending, active, lease, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local payload, meta, stats, config = KEYS[5], KEYS[6], KEYS[7], KEYS[8]

-- The size of each key. Asking for it is the cheapest way to check the type.
local size = {}
for i, ask in ipairs({ 'ZCARD', 'ZCARD', 'HLEN', 'ZCARD', 'HLEN', 'HLEN', 'HLEN', 'HLEN' }) do
  local n = redis.pcall(ask, KEYS[i])
  if type(n) ~= 'number' then
    if string.sub(n.err, 1, 9) ~= 'WRONGTYPE' then return n end
    local want = ask == 'HLEN' and 'hash' or 'zset'
    return redis.error_reply('WRONGTYPE ' .. KEYS[i] .. ' is a ' .. redis.call('TYPE', KEYS[i]).ok .. ', not a ' .. want)
  end
  size[KEYS[i]] = n
end

-- The layout of keys and records that these scripts support. A queue without this field has layout 1.
local layout = size[config] > 0 and redis.call('HGET', config, 'layout')
if layout and layout ~= '1' then
  return redis.error_reply('LAYOUT the queue has layout ' .. layout .. ', but this delayq supports only layout 1')
end

local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

-- Adds n to a counter. Returns its new value; false if nothing was written. pcall: a counter that other software has
-- overwritten must not stop the script.
local function count(name, n)
  local total = n > 0 and redis.pcall('HINCRBY', stats, name, n)
  return type(total) == 'number' and total
end

-- Once a minute, stores the state of the queue in a ring of sixteen samples, so that inspect can show rates and a trend
-- at once. Called before a script counts, so the sample excludes its own work; but after its first write, which decides
-- whether a full server accepts the call. pcall as in count.
local function sample()
  local minute = math.floor(now / 60000)
  if tonumber(redis.call('HGET', stats, 'sampled')) == minute then return end
  local n = redis.call('HMGET', stats, 'enqueued', 'delivered', 'acked', 'removed', 'retried', 'dead')
  for i = 1, 6 do n[i] = tonumber(n[i]) or 0 end
  redis.pcall('HSET', stats, 'sampled', minute, 'at:' .. minute % 16, string.format(
    '%.0f %.0f %.0f %.0f %.0f %.0f %.0f %s %.0f', now, n[1], n[2], n[3] + n[4], n[5], n[6],
    redis.call('ZCOUNT', pending, '-inf', now), redis.call('ZRANGE', pending, 0, 0, 'WITHSCORES')[2] or '-',
    redis.call('ZCARD', pending)))
end

-- Counts n deliveries by lateness. dues[1] … dues[last] are ascending due times, false for a job that was not
-- delivered. The jobs of one call fall into few buckets, so a binary search finds the end of each.
local function countLate(dues, last, n)
  local kept, sum, from = n == last and dues or {}, now * n, 1
  for i = 1, n < last and last or 0 do kept[#kept + 1] = dues[i] or nil end
  for i = 1, n do sum = sum - kept[i] end
  count('late:sum', math.floor(sum))
  local edges = { 3600000, 600000, 60000, 10000, 5000, 1000, 500, 100, 50, 10, 5 }
  for i, name in ipairs({ 'inf', unpack(edges) }) do
    local edge = edges[i] or -1
    if from <= n and now - kept[from] > edge then
      local low, high = from + 1, n + 1
      while low < high do
        local middle = math.floor((low + high) / 2)
        if now - kept[middle] > edge then low = middle + 1 else high = middle end
      end
      count('late:' .. name, low - from)
      from = low
    end
  end
end

-- Wakes waiting drains if the new first job is due before their next poll.
local function wake(channel, poll, soonest)
  if soonest <= now + poll and (tonumber(redis.call('ZRANGE', pending, 0, 0, 'WITHSCORES')[2]) or 0) >= soonest then
    -- pcall: a user without permission for the channel may still do the rest.
    redis.pcall('PUBLISH', channel, string.format('%.0f', soonest))
  end
end

-- Whether a text is a number of at least `least`; false for nil and NaN. For checks before the first write.
local function atLeast(least, text)
  local n = tonumber(text)
  return n ~= nil and n >= least
end
local BAD = redis.error_reply('ARGUMENT an argument of the script is not a number, or too small')
