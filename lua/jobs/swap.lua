-- Puts a new job into pending in place of another one, which is removed as by finish.lua.
-- ARGV   1 and 2 as for finish.lua, 3 id of the other job, then of the new one: 4 id, 5 payload, 6 time ('+ms' from now |
--        ms since 1970), 7 record ('': none)
-- Reply  now, a letter: what became of the other job, as finish.lua says it; k: the new id is taken, and nothing was done.
--        2 if the queue may be new, as in enqueue.lua. With 'active' and the letter m, nothing was done
-- Atomic because one of the two jobs must be there, and never both.
-- The first write grows memory on purpose: so a full server rejects the whole call.
-- include lib/prelude
local onceFor, maxActive
-- in a partition: onceFor, maxActive = unpack(call('HMGET', config, 'onceFor', 'maxActive'))
-- in a partition: local remembered = call('ZCARD', done)
-- include lib/gone
local by, states, other, id, body, when, record = unpack(ARGV)
local due = tonumber(when) and tonumber(when) + (string.sub(when, 1, 1) == '+' and now or 0)
if not due then return BAD end
local isTaken = call('HEXISTS', payload, id) == 1 or call('ZSCORE', active, id) or call('ZSCORE', dead, id)
-- in a partition: isTaken = isTaken or isRemembered(id)
if isTaken then return { now, 'k', 1 } end
local isActive = call('ZSCORE', active, other) and not isTransferred(call('HGET', lease, other))
if states == 'active' and not isActive then return { now, 'm', 1 } end

-- If it is already pending, it is an orphan, whose record must not be taken for that of this job.
if call('ZADD', pending, string.format('%d', due), id) == 0 then call('HDEL', meta, id) end
call('HSET', payload, id, body)
if record ~= '' then call('HSET', meta, id, record) end
local sampled, minute = call('HGET', stats, 'sampled'), math.floor(now / 60000)
if tonumber(sampled) ~= minute then
  -- include lib/sample
end
local letters = finish({ other }, by, states == 'any')
local begun = count('enqueued', 1) == 1
wake(due)
return { now, letters[1], begun and 2 or 1 }
