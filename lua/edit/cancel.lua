-- Removes jobs, whatever state they are in. A handler that runs is not stopped: its ack will be superseded.
-- ARGV   1 states from which to remove, a letter each (p pending, a active, d dead), then the ids
-- Reply  now, a letter for each job: the state that it was in, m missing in those
-- Atomic because a job must go whole, and one that has changed its state meanwhile is no longer the one that was meant.
local ids, letters, gone = {}, {}, {}
for i = 2, #ARGV do ids[#ids + 1] = ARGV[i] end
local leases = redis.call('HMGET', lease, unpack(ids))
local function removed(state, set, id)
  -- The first write frees memory: after it a full server lets the rest through. An id given twice is gone by then.
  return string.find(ARGV[1], state, 1, true) and redis.call('ZREM', set, id) == 1 and state
end
for i, id in ipairs(ids) do
  letters[i] = removed('p', pending, id) or removed('a', active, id) or removed('d', dead, id) or 'm'
  if letters[i] ~= 'm' then gone[#gone + 1] = id end
  if letters[i] == 'a' then supersede(id, leases[i]) end
end
drop(gone)
count('cancelled', #gone)
return { now, table.concat(letters) }
