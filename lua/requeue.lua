-- Puts dead jobs back into pending, due now, as if they had never been tried.
-- ARGV   1 wake channel, 2 poll interval ms, then the ids
-- Reply  now, a letter for each job: r requeued, m missing among the dead, o without a payload, so it stays
-- Atomic because a job must stand in one set only.
local ids, letters, records, put = {}, {}, {}, {}
for i = 3, #ARGV do ids[#ids + 1] = ARGV[i] end
local dies, known = redis.call('ZMSCORE', dead, unpack(ids)), redis.call('HMGET', meta, unpack(ids))
for i, id in ipairs(ids) do
  letters[i] = not dies[i] and 'm' or redis.call('HEXISTS', payload, id) == 0 and 'o' or 'r'
  -- The first write frees memory: after it a full server lets the rest through. An id given twice is gone by then.
  if letters[i] == 'r' and redis.call('ZREM', dead, id) == 0 then letters[i] = 'm' end
  if letters[i] == 'r' then
    put[#put + 1], put[#put + 2] = now, id
    -- What it was enqueued with stays, and the time to live counts anew: else it would have expired long ago.
    local rec = read(known[i])
    local kept = { tries = rec.tries, maxLost = rec.maxLost, ttl = rec.ttl }
    if next(kept) then write(id, kept) else redis.call('HDEL', meta, id) end
  end
end
if #put > 0 then
  redis.call('ZADD', pending, unpack(put))
  wake(ARGV[1], tonumber(ARGV[2]), now)
end
count('requeued', #put / 2)
return { now, table.concat(letters) }
