-- Moves jobs here from a sorted set, and a hash or string keys, of other software, if they have not changed since they
-- were read.
-- KEYS   after those of the queue: the sorted set (id → time), then the hash (id → value), or each job's string key
-- ARGV   for each job id, its score there, its value there, due ms, payload ('': the value itself); then hash or
--        strings, and replace or keep: what becomes of other jobs with these ids
-- Reply  now, a letter for each job: c adopted, r adopted in place of another job with this id, k removed there because
--        the same job is here, e left there because another job with this id is here, x it has changed
-- Atomic because a producer may change or remove a job at any moment, and it must be in one place only.
-- include lib/prelude
-- include lib/results
local replace, isHash = table.remove(ARGV) == 'replace', table.remove(ARGV) == 'hash'
local first = #KEYS - (isHash and 1 or #ARGV / 5)
local set, hash = KEYS[first], isHash and KEYS[#KEYS] or nil
-- Without a cluster, the twelfth key is the set.
if first == 12 then channel = nil end
for want, key in pairs({ zset = set, hash = hash }) do
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
local scores = call('ZMSCORE', set, unpack(ids))
-- MGET has nil for keys of other types.
local values = hash and call('HMGET', hash, unpack(ids)) or call('MGET', unpack(KEYS, first + 1))
local inPending = call('ZMSCORE', pending, unpack(ids))
local inActive = call('ZMSCORE', active, unpack(ids))
local inDead = call('ZMSCORE', dead, unpack(ids))
local letters, gone, times, payloads, soonest, seen = {}, {}, {}, {}, math.huge, {}
local fresh, old, superseded, strings = {}, {}, {}, {}
for i, id in ipairs(ids) do
  local at = 5 * i - 4
  local due, body = ARGV[at + 3], ARGV[at + 4] ~= '' and ARGV[at + 4] or ARGV[at + 2]
  if seen[id] or scores[i] ~= ARGV[at + 1] or values[i] ~= ARGV[at + 2] then
    letters[i] = 'x'
  elseif inPending[i] or inActive[i] or inDead[i] then
    local same = tonumber(inPending[i] or 'inf') == tonumber(due) and call('HGET', payload, id) == body
    -- What an unfinished move holds may be completed elsewhere already.
    local isMoving = inActive[i] == 'inf' and string.find(call('HGET', lease, id) or '', ' move:', 1, true)
    letters[i] = same and 'k' or replace and not isMoving and 'r' or 'e'
    if letters[i] == 'r' then old[#old + 1] = id end
    if letters[i] == 'r' and inActive[i] then superseded[#superseded + 1] = id end
  else
    letters[i] = 'c'
  end
  if letters[i] == 'c' or letters[i] == 'r' then
    fresh[#fresh + 1], times[#times + 1], times[#times + 2] = id, due, id
    payloads[#payloads + 1], payloads[#payloads + 2] = id, body
    soonest = math.min(soonest, tonumber(due))
  end
  seen[id] = true
  if string.find('crk', letters[i], 1, true) then
    gone[#gone + 1] = id
    if not hash then strings[#strings + 1] = KEYS[first + i] end
  end
end
if #gone > 0 then
  -- A permission that is missing is told before the type of a key. So nothing is removed that could not be added.
  local value = hash or strings[1]
  local probes = { try('HSET', set, '', ''), try('ZADD', value, 0, ''), try('ZREM', value, '') }
  if hash then probes[4] = try('HDEL', set, '') end
  for _, told in ipairs(probes) do
    if not string.find(told.err, '^WRONGTYPE') and not string.find(told.err, '^OOM') then return told end
  end
  -- First write: it frees memory, so a full server also accepts the rest.
  if not hash then call('UNLINK', unpack(strings)) end
  call('ZREM', set, unpack(gone))
  if hash then call('HDEL', hash, unpack(gone)) end
end
if #times > 0 then
  if #old > 0 then
    for _, from in ipairs({ active, dead }) do call('ZREM', from, unpack(old)) end
    call('HDEL', meta, unpack(old))
    for _, id in ipairs(superseded) do supersede(id, call('HGET', lease, id)) end
  end
  call('ZADD', pending, unpack(times))
  call('HSET', payload, unpack(payloads))
  for i, id in ipairs(tell and ids or {}) do
    local kind = letters[i] == 'c' and 'adopted' or letters[i] == 'r' and 'replaced'
    if kind then tell(kind, id, nil, nil, ARGV[5 * i - 1]) end
  end
  if forgetDone then forgetDone(fresh) end
end
-- Also 0: by this counter the next run knows that there was something to adopt.
if #gone > 0 then try('HINCRBY', stats, 'adopted', string.format('%d', #times / 2 - #old)) end
count('replaced', #old)
freed(#superseded)
wake(soonest)
return { now, table.concat(letters) }
