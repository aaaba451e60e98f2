-- Puts pending jobs among the dead, where no drain takes them.
-- ARGV   1 kept as their last error ('': what they have), then the ids
-- Reply  now, a letter for each job: b buried, a active, d dead before, m missing
-- Atomic because a job must stand in one set only, and one that is taken meanwhile must stay with whoever took it.
local ids, letters, buried = {}, {}, 0
for i = 2, #ARGV do ids[#ids + 1] = ARGV[i] end
local dues, records = redis.call('ZMSCORE', pending, unpack(ids)), redis.call('HMGET', meta, unpack(ids))
for i, id in ipairs(ids) do
  -- The first write frees memory: after it a full server lets the rest through. An id given twice is gone by then.
  if redis.call('ZREM', pending, id) == 1 then
    local rec, due = read(records[i]), tonumber(dues[i])
    rec.first = rec.first or due and math.abs(due) <= 1e15 and due or now
    if ARGV[1] ~= '' then rec.error = ARGV[1] end
    bury(id, rec, 'buried')
    letters[i], buried = 'b', buried + 1
  else
    letters[i] = redis.call('ZSCORE', active, id) and 'a' or redis.call('ZSCORE', dead, id) and 'd' or 'm'
  end
end
count('buried', buried)
return { now, table.concat(letters) }
