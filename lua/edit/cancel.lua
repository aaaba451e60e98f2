-- Removes jobs. A running handler is not stopped: its lease is superseded. Ids that are remembered are free again.
-- ARGV   1 states from which to remove, a letter each (p pending, a active, d dead), k: keep the ids, as if the jobs
--        were done, then the ids
-- Reply  now, a letter for each job: the state it was in, m in none of these states, f not a job, and freed
-- Atomic because a job must be removed completely, and only if it is still in one of these states.
-- include lib/prelude
-- include lib/windows
local ids, letters, gone, superseded = { unpack(ARGV, 2) }, {}, {}, 0
local leases = call('HMGET', lease, unpack(ids))
local function removed(state, set, id)
  -- First write: it frees memory, so a full server also accepts the rest. An id given twice is gone by then.
  return string.find(ARGV[1], state, 1, true) and call('ZREM', set, id) == 1 and state
end
local keeps = string.find(ARGV[1], 'k', 1, true)
for _, id in ipairs(string.find(known, ' from ', 1, true) and not keeps and ids or {}) do
  -- A transfer may have read the job at its old place, and would bring it back.
  if isRemembered(id) then
    return redis.error_reply('GROWING the queue is growing, and ' .. id .. ' is remembered')
  end
end

-- Frees an id that is no job.
local function isFreed(id)
  local isLive = call('ZSCORE', pending, id) or call('ZSCORE', active, id) or call('ZSCORE', dead, id)
  return not keeps and not isLive and isRemembered(id) and call('ZREM', done, id) == 1
end

for i, id in ipairs(ids) do
  -- What a growth is moving may be in its new partition already.
  letters[i] = isTransferred(leases[i]) and 'm' or removed('p', pending, id) or removed('a', active, id)
    or removed('d', dead, id) or 'm'
  if letters[i] == 'm' and isFreed(id) then letters[i] = 'f' end
  if letters[i] ~= 'm' and letters[i] ~= 'f' then gone[#gone + 1] = id end
  if letters[i] == 'a' then
    supersede(id, leases[i])
    superseded = superseded + 1
  end
end
-- An earlier job of an id may be remembered, too.
if keeps then remember(gone) elseif hasWindows and #gone > 0 then call('ZREM', done, unpack(gone)) end
drop(gone)
for _, id in ipairs(tell and gone or {}) do tell('cancelled', id) end
count('cancelled', #gone)
freed(superseded)
return { now, table.concat(letters) }
