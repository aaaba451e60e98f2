-- Removes jobs. A running handler is not stopped: its lease is superseded. Ids that are remembered are free again.
-- ARGV   1 states from which to remove, a letter each (p pending, a active, d dead), k: keep the ids, as if the jobs
--        were done, then the ids
-- Reply  now, a letter for each job: the state it was in, m in none of these states, f not a job, and freed
-- Atomic because a job must be removed completely, and only if it is still in one of these states.
-- include lib/prelude
-- in a partition: -- include lib/transferred
-- in a partition: -- include lib/freed
-- in a partition: local remembered, onceFor = call('ZCARD', done), call('HGET', config, 'onceFor')
-- in a partition: -- include lib/done
local ids, letters, gone, superseded = { unpack(ARGV, 2) }, {}, {}, 0
local leases = call('HMGET', lease, unpack(ids))
local function removed(state, set, id)
  -- First write: it frees memory, so a full server also accepts the rest. An id given twice is gone by then.
  return string.find(ARGV[1], state, 1, true) and call('ZREM', set, id) == 1 and state
end
-- in a partition: -- include parts/free
for i, id in ipairs(ids) do
  local isElsewhere = false
  -- What a growth is moving may be in its new partition already.
  -- in a partition: isElsewhere = isTransferred(leases[i])
  letters[i] = isElsewhere and 'm' or removed('p', pending, id) or removed('a', active, id)
    or removed('d', dead, id) or 'm'
  -- in a partition: if letters[i] == 'm' and isFreed(id) then letters[i] = 'f' end
  if letters[i] ~= 'm' and letters[i] ~= 'f' then gone[#gone + 1] = id end
  if letters[i] == 'a' then
    supersede(id, leases[i])
    superseded = superseded + 1
  end
end
-- in a partition: settle(gone)
drop(gone)
count('cancelled', #gone)
-- in a partition: freed(superseded)
return { now, table.concat(letters) }
