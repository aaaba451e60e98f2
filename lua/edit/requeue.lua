-- Moves dead jobs back to pending, as if they had never been tried.
-- ARGV   1 due time of the first ('+ms' from now | ms since 1970), 2 ms between two jobs, 3 new ttl, ms ('': as it
--        was), 4 new deliveries ('': as they were), then the ids
-- Reply  now, a letter for each job: r requeued, m not dead, o stays dead without a payload, i stays dead with an id
--        that no handler can receive; due time of a job after the last
-- Atomic because a job must be in only one set.
-- include lib/prelude
local after, start = spread(ARGV[1], ARGV[2])
if not after then return BAD end
local ttl, deliveries = tonumber(ARGV[3]), tonumber(ARGV[4])
if not (ARGV[3] == '' or atLeast(1, ttl)) or not (ARGV[4] == '' or atLeast(1, deliveries)) then return BAD end
local ids, letters, put = { unpack(ARGV, 5) }, {}, {}
local diedAt, records = call('ZMSCORE', dead, unpack(ids)), call('HMGET', meta, unpack(ids))
for i, id in ipairs(ids) do
  letters[i] = not diedAt[i] and 'm' or call('HEXISTS', payload, id) == 0 and 'o' or isId(id) and 'r' or 'i'
  -- First write: it frees memory, so a full server also accepts the rest. An id given twice is gone by then.
  if letters[i] == 'r' and call('ZREM', dead, id) == 0 then letters[i] = 'm' end
  if letters[i] == 'r' then
    put[#put + 1], put[#put + 2] = after(#put / 2), id
    -- Keep what it was enqueued with. The time to live starts again, or the job would expire at once.
    local rec = read(records[i])
    rec.ttl = ttl or rec.ttl
    local kept = {
      tries = rec.tries, maxLost = rec.maxLost, deliveries = deliveries or rec.deliveries, ttl = rec.ttl,
      once = rec.once, created = rec.created,
    }
    for name, value in pairs(rec) do
      if string.sub(name, 1, 2) == 'a:' then kept[name] = value end
    end
    if next(kept) then write(id, kept) else call('HDEL', meta, id) end
  end
end
if #put > 0 then
  call('ZADD', pending, unpack(put))
  wake(start)
end
count('requeued', #put / 2)
return { now, table.concat(letters), after(#put / 2) }
