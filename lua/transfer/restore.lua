-- Puts jobs into the queue in the state they have elsewhere. Does not change existing jobs.
-- ARGV   for each job
--        id, state (p pending | d dead), score, record ('': none), payload, token of the move that brings it ('': none)
--        then the counter of these jobs (none: restored; transferred: not counted, they come from another partition)
-- Reply  now, a letter for each job: c created, k kept (it exists with the same payload and attributes, or this move
--        has already brought it), x kept but dead, while the given one is pending, d differs (it exists with others), h
--        an unfinished move holds one with this id, e its id is remembered (only without a token)
-- Atomic because an id must be in only one set, and appear together with its payload and record. The token is stored
-- until the source has released the job: so a repeated move does not bring a job again that was completed in between.
-- The first write grows memory on purpose: so a full server rejects the whole call.
-- include lib/prelude
-- include lib/windows
-- include lib/results
local counter = #ARGV % 6 > 0 and table.remove(ARGV) or 'restored'
local ids, scores = {}, {}
for i = 1, #ARGV, 6 do
  if not atLeast(-math.huge, ARGV[i + 2]) then return BAD end
  -- Lua accepts numbers, such as 1e400, that ZADD would reject after the first writes.
  scores[#scores + 1] = string.format('%.17g', tonumber(ARGV[i + 2]))
  ids[#ids + 1] = ARGV[i]
end
-- The attributes in a record as text, to be compared.
local function attributesOf(record)
  local parts = {}
  if not string.find(record or '', '"a:', 1, true) then return '' end
  for name, value in pairs(read(record)) do
    if string.sub(name, 1, 2) == 'a:' then parts[#parts + 1] = name .. '=' .. tostring(value) end
  end
  table.sort(parts)
  return table.concat(parts, '\0')
end
local inPending = call('ZMSCORE', pending, unpack(ids))
local inActive = call('ZMSCORE', active, unpack(ids))
local inDead = call('ZMSCORE', dead, unpack(ids))

local letters, chosen, fresh, old, superseded, marks = {}, {}, {}, {}, {}, {}
local pendings, deads, payloads, records, soonest = {}, {}, {}, {}, math.huge
local hasOwnWindow = false
for i, id in ipairs(ids) do
  local at = 6 * i - 5
  local score, body, mark = scores[i], ARGV[at + 4], ARGV[at + 5] .. ' ' .. id
  local there = inPending[i] or inActive[i] or inDead[i]
  local letter = 'c'
  if there and call('HEXISTS', payload, id) == 1 then
    -- Compare lengths first, to read few payloads that differ.
    local same = call('HSTRLEN', payload, id) == #body and call('HGET', payload, id) == body
      and attributesOf(call('HGET', meta, id)) == attributesOf(ARGV[at + 3])
    letter = not same and 'd' or inDead[i] and ARGV[at + 1] == 'p' and 'x' or 'k'
  end
  if mark ~= ' ' .. id and call('HEXISTS', lease, mark) == 1 then
    letters[i] = 'k'
  elseif chosen[id] then
    local other = 6 * chosen[id] - 5
    local same = ARGV[other + 4] == body and attributesOf(ARGV[other + 3]) == attributesOf(ARGV[at + 3])
    letters[i] = same and 'k' or 'd'
  elseif inActive[i] == 'inf' and string.find(call('HGET', lease, id) or '', ' move:%S+ [pd] %S+$') then
    -- That job may already be completed elsewhere, and will then be removed: do not take it for this one.
    letters[i] = 'h'
  elseif letter ~= 'c' then
    letters[i] = letter
  elseif ARGV[at + 5] == '' and isRemembered(id) then
    letters[i] = 'e'
  else
    letters[i], chosen[id], fresh[#fresh + 1] = letter, i, id
    -- An id without a payload is not a job: restoring it repairs it.
    if there then old[#old + 1] = id end
    if inActive[i] then superseded[#superseded + 1] = id end
    local times = ARGV[at + 1] == 'd' and deads or pendings
    times[#times + 1], times[#times + 2] = score, id
    payloads[#payloads + 1], payloads[#payloads + 2] = id, body
    if ARGV[at + 3] ~= '' then records[#records + 1], records[#records + 2] = id, ARGV[at + 3] end
    hasOwnWindow = hasOwnWindow or windowIn(ARGV[at + 3]) ~= nil
    if times == pendings then soonest = math.min(soonest, tonumber(score)) end
  end
  if string.find('ck', letters[i], 1, true) and mark ~= ' ' .. id then
    marks[#marks + 1], marks[#marks + 2] = mark, string.format('%.0f moved', now)
  end
end

if #payloads > 0 then
  call('ZADD', pending, 'XX', '0', '') -- Only for its permission.
  call('HSET', payload, unpack(payloads))
  if #old > 0 then
    for _, set in ipairs({ pending, active, dead }) do call('ZREM', set, unpack(old)) end
    call('HDEL', meta, unpack(old))
  end
  for _, id in ipairs(superseded) do supersede(id, call('HGET', lease, id)) end
  freed(#superseded)
  if #pendings > 0 then call('ZADD', pending, unpack(pendings)) end
  if #deads > 0 then call('ZADD', dead, unpack(deads)) end
  if #records > 0 then call('HSET', meta, unpack(records)) end
  if hasOwnWindow then openWindow() end
end
if #marks > 0 then call('HSET', lease, unpack(marks)) end
if #payloads > 0 and counter ~= 'transferred' then
  for i = 1, tell and #ids or 0 do
    if letters[i] == 'c' then tell(counter, ids[i], nil, nil, scores[i]) end
  end
  if forgetDone then forgetDone(fresh) end
end
-- Also 0, as in adopt.lua.
if counter == 'adopted' then try('HINCRBY', stats, counter, '0') end
if counter ~= 'transferred' then count(counter, #payloads / 2) end
wake(soonest)
return { now, table.concat(letters) }
