-- Moves dead jobs back to pending, as if they had never been tried. Gives one job a new payload before, if it has not
-- changed since it was read: it may also be pending, and then stays as it is otherwise.
-- ARGV   1 due time of the first ('+ms' from now | ms since 1970), 2 ms between two jobs, 3 new ttl, ms ('': as it
--        was), 4 new deliveries ('': as they were), 5 '' or SHA-1 of the job as it was read (state p | d, score, space,
--        record, space, payload), and then its new payload; then the ids
-- Reply  now, a letter for each job: r requeued, m not dead, o stays dead without a payload, i stays dead with an id
--        that no handler can receive, p pending with its new payload, x changed since it was read; due time of a job
--        after the last
-- Atomic because a job must be in only one set, and a drain may take it at any moment.
-- include lib/prelude
local after, start = spread(ARGV[1], ARGV[2])
if not after then return BAD end
local ttl, deliveries = tonumber(ARGV[3]), tonumber(ARGV[4])
if not (ARGV[3] == '' or atLeast(1, ttl)) or not (ARGV[4] == '' or atLeast(1, deliveries)) then return BAD end
local mark, ids, letters, put = ARGV[5], { unpack(ARGV, ARGV[5] == '' and 6 or 7) }, {}, {}
local diedAt, records = call('ZMSCORE', dead, unpack(ids)), call('HMGET', meta, unpack(ids))
if mark ~= '' then
  local id = ids[1]
  local due, body = call('ZSCORE', pending, id), call('HGET', payload, id) or ''
  local state = due and 'p' .. due or 'd' .. (diedAt[1] or '')
  if redis.sha1hex(table.concat({ state, records[1] or '', body }, ' ')) ~= mark then return { now, 'x', '' } end
  if not isId(id) then return { now, 'i', '' } end
  -- First write: it frees memory, so a full server also accepts the rest.
  call('HDEL', lease, id)
  call('HSET', payload, id, ARGV[6])
  if due then
    count('replaced', 1)
    if tell then tell('replaced', id, nil, nil, due) end
    return { now, 'p', '' }
  end
end
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
    if tell then tell('requeued', id, nil, nil, put[#put - 1]) end
  end
end
if #put > 0 then
  call('ZADD', pending, unpack(put))
  wake(start)
end
count('requeued', #put / 2)
return { now, table.concat(letters), after(#put / 2) }
