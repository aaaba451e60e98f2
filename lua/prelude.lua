-- Stands before every script. Names the keys, the same in each and in the same order; reads the clock; and refuses
-- before the first write what would fail half-way, because Redis does not undo what a failed script has written.
local pending, active, lease, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local payload, meta, stats, config = KEYS[5], KEYS[6], KEYS[7], KEYS[8]

for i, want in ipairs({ 'zset', 'zset', 'hash', 'zset', 'hash', 'hash', 'hash', 'hash' }) do
  local type = redis.call('TYPE', KEYS[i]).ok
  if type ~= want and type ~= 'none' then
    return redis.error_reply('WRONGTYPE ' .. KEYS[i] .. ' is a ' .. type .. ', not a ' .. want)
  end
end

-- The layout of keys and records that these scripts know. A queue without the field is of layout 1.
local layout = redis.call('HGET', config, 'layout')
if layout and layout ~= '1' then
  return redis.error_reply('LAYOUT the queue has layout ' .. layout .. ', these scripts know 1')
end

local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

-- A job's record in meta. What cannot be read, or not be written again, counts as not there: nothing that other
-- software has written may stop the queue.
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

-- A count or a time of such a record, or of the config.
local function counted(value, otherwise)
  local n = tonumber(value)
  return n and n >= 0 and n <= 1e15 and math.floor(n) or otherwise
end

local function write(id, rec)
  redis.call('HSET', meta, id, cjson.encode(rec))
end

local function bury(id, rec, reason)
  rec.reason = reason
  redis.call('ZADD', dead, now, id)
  write(id, rec)
end

-- The due time in a lease's record; now when there is none, or none that can be a score and stand in a record.
local function dueOf(held)
  local n = tonumber(held and string.match(held, '^%S+ (%S+)'))
  return n and math.abs(n) <= 1e15 and n or now
end

-- How long jobs of this queue are hidden when the caller does not say, ms.
local function queueLease(text)
  return math.max(counted(text, 60000), 1)
end

-- pcall: a counter that other software has spoilt must not stop a script half-way.
local function count(name, n)
  if n > 0 then redis.pcall('HINCRBY', stats, name, n) end
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

-- Which of the jobs ARGV[first], ARGV[first + step] … (an id, then its receipt) are still held, as a list of letters:
-- h held, s superseded, l lost. Whoever supersedes a lease leaves the field 'receipt id' in lease to tell by.
local function answers(first, step)
  local ids, letters = {}, {}
  for i = first, #ARGV, step do ids[#ids + 1] = ARGV[i] end
  local leases = redis.call('HMGET', lease, unpack(ids))
  for i, id in ipairs(ids) do
    local receipt = ARGV[first + (i - 1) * step + 1]
    if leases[i] and string.sub(leases[i], 1, #receipt + 1) == receipt .. ' ' then
      letters[i] = 'h'
    else
      letters[i] = redis.call('HEXISTS', lease, receipt .. ' ' .. id) == 1 and 's' or 'l'
    end
  end
  return ids, letters, leases
end
