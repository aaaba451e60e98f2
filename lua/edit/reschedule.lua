-- Gives pending jobs new due times, in the order in which they stand in line.
-- ARGV   1 due time of the first ('+ms' from now | ms since 1970), 2 ms from each to the next, 3 wake channel,
--        4 poll interval ms, then the ids
-- Reply  now, a letter for each job: p rescheduled, a active, d dead, m missing; due time for a job after the last
-- Atomic because a job that is taken meanwhile must stay with whoever took it, and the order be that of one moment.
local after, start = spread(ARGV[1], ARGV[2])
if not (after and atLeast(0, ARGV[4])) then return BAD end
local ids, letters, places, ranks = {}, {}, {}, {}
for i = 5, #ARGV do ids[#ids + 1] = ARGV[i] end
local inActive, inDead = redis.call('ZMSCORE', active, unpack(ids)), redis.call('ZMSCORE', dead, unpack(ids))
for i, id in ipairs(ids) do
  local rank = redis.call('ZRANK', pending, id)
  letters[i] = rank and 'p' or inActive[i] and 'a' or inDead[i] and 'd' or 'm'
  -- An id given twice has one place.
  if rank and not places[rank] then places[rank], ranks[#ranks + 1] = id, rank end
end
table.sort(ranks)

if #ranks > 0 then
  local line, put = {}, {}
  for n, rank in ipairs(ranks) do
    line[n], put[2 * n - 1], put[2 * n] = places[rank], after(n - 1), places[rank]
  end
  -- The first write frees memory: after it a full server lets the rest through.
  redis.call('ZREM', pending, unpack(line))
  redis.call('ZADD', pending, unpack(put))
  for n, text in ipairs(redis.call('HMGET', meta, unpack(line))) do
    local rec = read(text)
    -- The new due time is the first one now: a time to live counts from it.
    if rec.first then
      rec.first = nil
      if next(rec) then write(line[n], rec) else redis.call('HDEL', meta, line[n]) end
    end
  end
  count('rescheduled', #ranks)
  wake(ARGV[3], tonumber(ARGV[4]), start)
end
return { now, table.concat(letters), after(#ranks) }
