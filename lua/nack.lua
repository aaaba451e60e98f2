-- Gives jobs back.
-- ARGV   1 'retry' (a failure; dead once the tries are spent) | 'dead' (a failure, and dead at once)
--        | 'release' (counts nothing, due as before), 2 last error (''), then for each job id, receipt, delay ms
-- Reply  now, a letter for each job: p pending, d dead, l lost, s superseded
-- Atomic because a job must stand in one set only, and only the holder of the current lease may give it back.
local mode, problem = ARGV[1], ARGV[2]
for i = 5, #ARGV, 3 do
  if not atLeast(0, ARGV[i]) then return BAD end
end
local ids, letters, leases = answers(3, 3)
local tries = tonumber(redis.call('HGET', config, 'tries')) or 5
local retried, died = 0, 0
for i, id in ipairs(ids) do
  -- The first write frees memory: after it a full server lets the rest through. An id given twice is gone by then.
  if letters[i] == 'h' and redis.call('ZREM', active, id) == 0 then letters[i] = 'l' end
  if letters[i] == 'h' then
    redis.call('HDEL', lease, id)
    local due = dueOf(leases[i])
    letters[i] = 'p'
    if mode == 'release' then
      redis.call('ZADD', pending, due, id)
    else
      local rec = read(redis.call('HGET', meta, id))
      rec.failures = (tonumber(rec.failures) or 0) + 1
      rec.first = rec.first or tonumber(due)
      rec.error = problem ~= '' and problem or nil
      if mode == 'dead' or rec.failures >= (tonumber(rec.tries) or tries) then
        bury(id, rec, mode == 'dead' and 'refused' or 'failed')
        letters[i], died = 'd', died + 1
      else
        redis.call('ZADD', pending, now + tonumber(ARGV[3 * i + 2]), id)
        write(id, rec)
        retried = retried + 1
      end
    end
  elseif letters[i] == 's' then
    redis.call('HDEL', lease, ARGV[3 * i + 1] .. ' ' .. id)
  end
end
count('retried', retried) count('dead', died)
return { now, table.concat(letters) }
