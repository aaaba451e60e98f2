-- Moves jobs here from a sorted set and a hash of other software, if they have not changed since they were read.
-- KEYS   after those of the queue: the sorted set (id → time), the hash (id → value)
-- ARGV   for each job id, its score there, its value there, due ms, payload ('': the value itself)
-- Reply  now, a letter for each job: c adopted, k removed there because the same job is here, e left there because
--        another job with this id is here, x it has changed
-- Atomic because a producer may change or remove a job at any moment, and it must be in one place only.
-- include lib/prelude
local set, hash = KEYS[#KEYS - 1], KEYS[#KEYS]
for i, want in ipairs({ 'zset', 'hash' }) do
  local key = i == 1 and set or hash
  local type = call('TYPE', key).ok
  if type ~= want and type ~= 'none' then
    return redis.error_reply('WRONGTYPE ' .. key .. ' is a ' .. type .. ', not a ' .. want)
  end
end
local ids = {}
for i = 1, #ARGV, 5 do
  if not atLeast(-1e16, ARGV[i + 3]) then return BAD end
  ids[#ids + 1] = ARGV[i]
end
local scores, values = call('ZMSCORE', set, unpack(ids)), call('HMGET', hash, unpack(ids))
local inPending = call('ZMSCORE', pending, unpack(ids))
local inActive = call('ZMSCORE', active, unpack(ids))
local inDead = call('ZMSCORE', dead, unpack(ids))
local letters, gone, times, payloads, soonest, seen = {}, {}, {}, {}, math.huge, {}
for i, id in ipairs(ids) do
  local at = 5 * i - 4
  local due, body = ARGV[at + 3], ARGV[at + 4] ~= '' and ARGV[at + 4] or ARGV[at + 2]
  if seen[id] or scores[i] ~= ARGV[at + 1] or values[i] ~= ARGV[at + 2] then
    letters[i] = 'x'
  elseif inPending[i] or inActive[i] or inDead[i] then
    local same = tonumber(inPending[i] or 'inf') == tonumber(due) and call('HGET', payload, id) == body
    letters[i] = same and 'k' or 'e'
  else
    letters[i] = 'c'
    times[#times + 1], times[#times + 2] = due, id
    payloads[#payloads + 1], payloads[#payloads + 2] = id, body
    soonest = math.min(soonest, tonumber(due))
  end
  seen[id] = true
  if letters[i] == 'c' or letters[i] == 'k' then gone[#gone + 1] = id end
end
if #gone > 0 then
  -- A permission that is missing is told before the type of a key. So nothing is removed that could not be added.
  for _, told in ipairs({ try('HSET', set, '', ''), try('ZADD', hash, 0, ''), try('HDEL', set, '') }) do
    if not string.find(told.err, '^WRONGTYPE') and not string.find(told.err, '^OOM') then return told end
  end
  -- First write: it frees memory, so a full server also accepts the rest.
  call('ZREM', set, unpack(gone))
  call('HDEL', hash, unpack(gone))
end
if #times > 0 then
  call('ZADD', pending, unpack(times))
  call('HSET', payload, unpack(payloads))
end
count('adopted', #times / 2)
wake(soonest)
return { now, table.concat(letters) }
