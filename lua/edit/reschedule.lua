-- Gives pending jobs new due times, in the order of their old ones.
-- ARGV   1 due time of the first ('+ms' from now | ms since 1970), 2 ms between two jobs, then the
--        ids
-- Reply  now, a letter for each job: p rescheduled, a active, d dead, m missing; due time of a job after the last
-- Atomic because a job that a drain has just taken must stay active, and ranks must be of one moment.
-- include lib/prelude
local after, start = spread(ARGV[1], ARGV[2])
if not after then return BAD end
local ids, letters, idAt, ranks = { unpack(ARGV, 3) }, {}, {}, {}
local inActive, inDead = call('ZMSCORE', active, unpack(ids)), call('ZMSCORE', dead, unpack(ids))
for i, id in ipairs(ids) do
  local rank = call('ZRANK', pending, id)
  letters[i] = rank and 'p' or inActive[i] and 'a' or inDead[i] and 'd' or 'm'
  -- An id given twice counts once.
  if rank and not idAt[rank] then idAt[rank], ranks[#ranks + 1] = id, rank end
end
table.sort(ranks)

if #ranks > 0 then
  local inOrder, put = {}, {}
  for n, rank in ipairs(ranks) do
    inOrder[n], put[2 * n - 1], put[2 * n] = idAt[rank], after(n - 1), idAt[rank]
  end
  -- First write: it frees memory, so a full server also accepts the rest.
  call('ZREM', pending, unpack(inOrder))
  call('ZADD', pending, unpack(put))
  for n, id in ipairs(tell and inOrder or {}) do tell('rescheduled', id, nil, nil, put[2 * n - 1]) end
  for n, text in ipairs(call('HMGET', meta, unpack(inOrder))) do
    local rec = read(text)
    -- The time to live now counts from the new due time.
    if rec.first then
      rec.first = nil
      if next(rec) then write(inOrder[n], rec) else call('HDEL', meta, inOrder[n]) end
    end
  end
  count('rescheduled', #ranks)
  wake(start)
end
return { now, table.concat(letters), after(#ranks) }
