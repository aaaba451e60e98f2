-- Mends faults in ids of one structure, as far as that is safe. Never deletes a payload: a job that cannot be repaired
-- goes to dead, where an operator can requeue or cancel it.
-- ARGV   1 pending | active | dead | payload | meta | lease, then the ids
-- Reply  now, a letter for each id: the fault (faults.lua) that was mended, '-' if there was none to mend
-- Atomic because an id whose fault has just disappeared must not be changed.
-- include lib/prelude
-- include lib/ids
-- include lib/faults
-- in a partition: -- include lib/returned
local where = ARGV[1]

-- The holder sees that its lease was superseded, so its handler is not killed.
local function retire(id)
  local held = call('HGET', lease, id)
  call('ZREM', active, id)
  supersede(id, held)
end

local function toDead(id, reason)
  bury(id, read(call('HGET', meta, id)), reason)
end

local function fromPending(id, reason)
  call('ZREM', pending, id)
  toDead(id, reason)
  count('dead', 1)
end

local mends = {
  t = function(id)
    if where == 'pending' then retire(id) end
    call('ZREM', dead, id)
  end,
  o = function(id, died)
    call('ZREM', pending, id)
    retire(id)
    toDead(id, 'orphaned')
    if died then call('ZADD', dead, died, id) else count('orphaned', 1) end
  end,
  e = function(id) fromPending(id, 'bad due') end,
  b = function(id) fromPending(id, 'bad id') end,
  -- The holder may still ack. The next drain takes the job back.
  h = function(id) call('ZADD', active, now, id) end,
  u = function(id)
    call('HDEL', lease, id)
    call('ZREM', active, id)
    call('ZADD', pending, now, id)
  end,
  f = function(id) toDead(id, 'found') end,
  m = function(id) call('HDEL', meta, id) end,
  -- Every script already ignores an unreadable record.
  r = function(id) call('HDEL', meta, id) end,
  l = function(id) if hasPayload(id) then retire(id) else call('HDEL', lease, id) end end,
  s = function(id) call('HDEL', lease, id) end,
}
mends.n, mends.k = mends.e, mends.s

-- First write: it frees memory, so a full server also accepts the rest.
call('HDEL', lease, '')
local letters = {}
for i = 2, #ARGV do
  local id = ARGV[i]
  -- One fault may hide another.
  for _ = 1, 4 do
    local p, a, d = call('ZSCORE', pending, id), call('ZSCORE', active, id), call('ZSCORE', dead, id)
    local fault = faultOf(where, id, p, a, d)
    if not mends[fault or ''] then break end
    mends[fault](id, d)
    -- in a partition: returned({ id })
    letters[i - 1] = letters[i - 1] or fault
  end
  letters[i - 1] = letters[i - 1] or '-'
end
return { now, table.concat(letters) }
