-- Makes the jobs of recurring ones that are due, and sets their next occurrences.
-- ARGV   for each definition: id, rev ('': whatever it is), occurrence that the caller was told, next occurrence, ms
--        ('inf': none), 'skip' or 'allow' (overlap), record of its jobs ('': none), how many occurrences make no job,
--        number of jobs, then due and id of each
-- Reply  for each definition how many jobs were made, -1 if its rev or its occurrence is another: somebody has done it
-- Atomic because a drain that dies between a job and the next occurrence would make the job twice, or never.
-- The first write grows memory on purpose: so a full server rejects the whole call.
-- include lib/prelude
-- include lib/windows
-- include lib/results

-- Whether an id is that of a job, or remembered; and if not, whether something is left of it: an orphan.
local function isTaken(id)
  if isRemembered(id) then return true end
  local there = call('ZSCORE', pending, id) or call('ZSCORE', active, id) or call('ZSCORE', dead, id)
  return there and call('HEXISTS', payload, id) == 1, there
end

-- Makes the jobs at ARGV[first], ARGV[first + 2] … (due, then id). Returns how many, and the due time of the first.
local function make(first, n, body, record)
  local fresh, soonest = {}, math.huge
  for i = first, first + 2 * n - 2, 2 do
    local due, id = ARGV[i], ARGV[i + 1]
    local taken, orphan = isTaken(id)
    if not taken then
      call('ZADD', pending, due, id)
      call('HSET', payload, id, body)
      if orphan then call('ZREM', active, id) call('ZREM', dead, id) call('HDEL', meta, id) end
      if record ~= '' then call('HSET', meta, id, record) end
      if tell then tell('made', id, nil, nil, due) end
      fresh[#fresh + 1], soonest = id, math.min(soonest, tonumber(due))
    end
  end
  if forgetDone and #fresh > 0 then forgetDone(fresh) end
  return #fresh, soonest
end

local i = 1
while i <= #ARGV do
  local _, _, told, after, _, _, missed, n = unpack(ARGV, i, i + 7)
  if not (tonumber(told) and tonumber(after) and atLeast(0, missed) and atLeast(0, n)) then return BAD end
  i = i + 8 + 2 * n
  if i > #ARGV + 1 then return BAD end
end

local reply, made, skipped, soonest = {}, 0, 0, math.huge
i = 1
while i <= #ARGV do
  local id, rev, told, after, overlap, record, missed, n = unpack(ARGV, i, i + 7)
  local last, header, body = string.match(call('HGET', every, id) or '', '^([^\n]*)\n([^\n]*)\n(.*)$')
  -- An unreadable definition has the rev '-'.
  local was = header and string.match(header, '^{"rev":"(%w+)"') or call('HEXISTS', every, id) == 1 and '-' or nil
  n, reply[#reply + 1] = tonumber(n), -1
  if tonumber(call('ZSCORE', occurs, id)) == tonumber(told) and (rev == '' or rev == was) then
    local fresh, first = 0, math.huge
    if n > 0 and overlap == 'skip' and (call('ZSCORE', pending, last) or call('ZSCORE', active, last)) then
      skipped = skipped + n
    elseif n > 0 then
      fresh, first = make(i + 8, n, body, record)
      if windowIn(record) then openWindow() end
      call('HSET', every, id, ARGV[i + 7 + 2 * n] .. '\n' .. header .. '\n' .. body)
    end
    if was then call('ZADD', occurs, after, id) elseif call('ZREM', occurs, id) == 1 then noteUses() end
    reply[#reply], made, soonest = fresh, made + fresh, math.min(soonest, first)
    skipped = skipped + tonumber(missed)
  end
  i = i + 8 + 2 * tonumber(ARGV[i + 7])
end
if made > 0 then
  sample()
  wake(soonest)
end
count('enqueued', made) count('skipped', skipped)
return reply
