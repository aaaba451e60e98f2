-- Puts jobs into the queue in the state that they have elsewhere. What is there stays as it is.
-- ARGV   1 wake channel, 2 poll interval ms, then for each job
--        id, state (p pending | d dead), score, record ('': none), payload, token of the move that brings it ('': none)
-- Reply  now, a letter for each job: c created, k kept (there with the same payload, or brought by that move before),
--        x kept although it is dead there and was pending here, d differs (there with another payload),
--        h held there by a move that has not ended
-- Atomic because an id must stand in one set only, and come to be with its payload and its record. The token stays
-- behind until the source has let go, so that a move that is repeated does not bring a job twice that was done meanwhile.
-- The first write may grow memory on purpose: on a full server the whole call is refused.
local channel, poll, ids = ARGV[1], tonumber(ARGV[2]), {}
for i = 3, #ARGV, 6 do
  if not atLeast(-math.huge, ARGV[i + 2]) then return BAD end
  -- Lua reads numbers, such as 1e400, that ZADD would refuse when half is written.
  ARGV[i + 2] = string.format('%.17g', tonumber(ARGV[i + 2]))
  ids[#ids + 1] = ARGV[i]
end
local inPending = redis.call('ZMSCORE', pending, unpack(ids))
local inActive = redis.call('ZMSCORE', active, unpack(ids))
local inDead = redis.call('ZMSCORE', dead, unpack(ids))

local letters, chosen, old, superseded, marks = {}, {}, {}, {}, {}
local pendings, deads, payloads, records, soonest = {}, {}, {}, {}, math.huge
for i, id in ipairs(ids) do
  local at = 6 * i - 3
  local score, body, mark = ARGV[at + 2], ARGV[at + 4], ARGV[at + 5] .. ' ' .. id
  local there = inPending[i] or inActive[i] or inDead[i]
  if mark ~= ' ' .. id and redis.call('HEXISTS', lease, mark) == 1 then
    letters[i] = 'k'
  elseif chosen[id] then
    letters[i] = chosen[id] == body and 'k' or 'd'
  elseif inActive[i] == 'inf' and string.find(redis.call('HGET', lease, id) or '', ' move:%S+ [pd] %S+$') then
    -- It may be done elsewhere already, and then goes without a word: this one must not be taken for it.
    letters[i] = 'h'
  elseif there and redis.call('HEXISTS', payload, id) == 1 then
    -- By length first: few bodies that differ are worth reading.
    local same = redis.call('HSTRLEN', payload, id) == #body and redis.call('HGET', payload, id) == body
    letters[i] = not same and 'd' or inDead[i] and ARGV[at + 1] == 'p' and 'x' or 'k'
  else
    letters[i], chosen[id] = 'c', body
    -- An id without a payload is no job: restoring it mends it.
    if there then old[#old + 1] = id end
    if inActive[i] then superseded[#superseded + 1] = id end
    local times = ARGV[at + 1] == 'd' and deads or pendings
    times[#times + 1], times[#times + 2] = score, id
    payloads[#payloads + 1], payloads[#payloads + 2] = id, body
    if ARGV[at + 3] ~= '' then records[#records + 1], records[#records + 2] = id, ARGV[at + 3] end
    if times == pendings then soonest = math.min(soonest, tonumber(score)) end
  end
  if (letters[i] == 'c' or letters[i] == 'k') and mark ~= ' ' .. id then marks[#marks + 1], marks[#marks + 2] = mark, now end
end

if #payloads > 0 then
  redis.call('HSET', payload, unpack(payloads))
  if #old > 0 then
    for _, set in ipairs({ pending, active, dead }) do redis.call('ZREM', set, unpack(old)) end
    redis.call('HDEL', meta, unpack(old))
  end
  for _, id in ipairs(superseded) do supersede(id, redis.call('HGET', lease, id)) end
  if #pendings > 0 then redis.call('ZADD', pending, unpack(pendings)) end
  if #deads > 0 then redis.call('ZADD', dead, unpack(deads)) end
  if #records > 0 then redis.call('HSET', meta, unpack(records)) end
end
if #marks > 0 then redis.call('HSET', lease, unpack(marks)) end
count('restored', #payloads / 2)
wake(channel, poll, soonest)
return { now, table.concat(letters) }
