-- Puts dead jobs back into pending, as if they had never been tried.
-- ARGV   1 due time of the first ('+ms' from now | ms since 1970), 2 ms from each to the next, 3 wake channel,
--        4 poll interval ms, then the ids
-- Reply  now, a letter for each job: r requeued, m missing among the dead, o without a payload, i with an id that no drain
--        hands out, so it stays; due time for a job after the last
-- Atomic because a job must stand in one set only.
local after, start = spread(ARGV[1], ARGV[2])
if not (after and atLeast(0, ARGV[4])) then return BAD end
local ids, letters, put = {}, {}, {}
for i = 5, #ARGV do ids[#ids + 1] = ARGV[i] end
local dies, known = redis.call('ZMSCORE', dead, unpack(ids)), redis.call('HMGET', meta, unpack(ids))
for i, id in ipairs(ids) do
  letters[i] = not dies[i] and 'm' or redis.call('HEXISTS', payload, id) == 0 and 'o' or isId(id) and 'r' or 'i'
  -- The first write frees memory: after it a full server lets the rest through. An id given twice is gone by then.
  if letters[i] == 'r' and redis.call('ZREM', dead, id) == 0 then letters[i] = 'm' end
  if letters[i] == 'r' then
    put[#put + 1], put[#put + 2] = after(#put / 2), id
    -- What it was enqueued with stays, and the time to live counts anew: else it would have expired long ago.
    local rec = read(known[i])
    local kept = { tries = rec.tries, maxLost = rec.maxLost, ttl = rec.ttl }
    if next(kept) then write(id, kept) else redis.call('HDEL', meta, id) end
  end
end
if #put > 0 then
  redis.call('ZADD', pending, unpack(put))
  wake(ARGV[3], tonumber(ARGV[4]), start)
end
count('requeued', #put / 2)
return { now, table.concat(letters), after(#put / 2) }
