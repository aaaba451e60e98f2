-- Stands before every script, with records.lua. Names the keys, the same in each and in the same order; reads the clock; and refuses
-- before the first write what would fail half-way, because Redis does not undo what a failed script has written.
local pending, active, lease, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local payload, meta, stats, config = KEYS[5], KEYS[6], KEYS[7], KEYS[8]

-- How much each holds: the cheapest question that only the right type answers.
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

-- The layout of keys and records that these scripts know. A queue without the field is of layout 1.
local layout = size[config] > 0 and redis.call('HGET', config, 'layout')
if layout and layout ~= '1' then
  return redis.error_reply('LAYOUT the queue has layout ' .. layout .. ', these scripts know 1')
end

local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

-- pcall: a counter that other software has spoilt must not stop a script half-way. What it stands at; false if not written.
local function count(name, n)
  local total = n > 0 and redis.pcall('HINCRBY', stats, name, n)
  return type(total) == 'number' and total
end

-- Once a minute, how the queue stands, into a ring of sixteen: so inspect can tell rates and a trend at its first look.
-- Called before a script counts, so what it does counts as done since; but behind its first write, as on a full server
-- that one decides. pcall as in count.
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

-- Counts n deliveries by how late they were: dues[1] … dues[last], ascending, false for a job that was not delivered.
-- The jobs of a call meet few of the buckets, so their ends are searched for, not walked to.
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

-- Tells sleeping watchers of a new head. Only one that is due before they would look again is worth a message.
local function wake(channel, poll, soonest)
  if soonest <= now + poll and (tonumber(redis.call('ZRANGE', pending, 0, 0, 'WITHSCORES')[2]) or 0) >= soonest then
    -- pcall: an account without rights to the channel may still do the rest.
    redis.pcall('PUBLISH', channel, string.format('%.0f', soonest))
  end
end

-- Whether a text is a number of at least `least`; neither nil nor NaN is. For use before the first write.
local function atLeast(least, text)
  local n = tonumber(text)
  return n ~= nil and n >= least
end
local BAD = redis.error_reply('ARGUMENT a number that a script was given is none, or too small')
