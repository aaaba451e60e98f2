-- Moves pending jobs to dead, where no drain takes them.
-- ARGV   1 their last error ('': unchanged), then the ids
-- Reply  now, a letter for each job: b buried, a active, d already dead, m missing
-- Atomic because a job must be in only one set, and a job that a drain has just taken must stay active.
-- include lib/prelude
local ids, letters, buried = { unpack(ARGV, 2) }, {}, 0
local dues, records = call('ZMSCORE', pending, unpack(ids)), call('HMGET', meta, unpack(ids))
for i, id in ipairs(ids) do
  -- First write: it frees memory, so a full server also accepts the rest. An id given twice is gone by then.
  if call('ZREM', pending, id) == 1 then
    local rec, due = read(records[i]), tonumber(dues[i])
    rec.first = rec.first or due and math.abs(due) <= 1e15 and due or now
    if ARGV[1] ~= '' then rec.error = ARGV[1] end
    bury(id, rec, 'buried')
    letters[i], buried = 'b', buried + 1
  else
    letters[i] = call('ZSCORE', active, id) and 'a' or call('ZSCORE', dead, id) and 'd' or 'm'
  end
end
count('buried', buried)
return { now, table.concat(letters) }
