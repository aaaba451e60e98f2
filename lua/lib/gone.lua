-- include lib/transferred
-- in a partition: -- include lib/done
-- in a partition: -- include lib/freed
-- Removes jobs without receipts; `all`: in whatever state they are, otherwise only active ones. Those that consumers hold
-- whose names begin with `by` ('': none) are done, others are cancelled. What a growth is moving may be in its new
-- partition already, so it is missing here. Returns a letter for each: a acked, c cancelled, m missing. Needs `onceFor`
-- and `maxActive`, the settings. Reads before it writes, so that a key of another type fails the call.
local function finish(ids, by, all)
  local letters, seen, held, ended, cancelled, superseded = {}, {}, {}, {}, {}, {}
  local leases = call('HMGET', lease, unpack(ids))
  call('ZCARD', active) call('ZCARD', pending) call('ZCARD', dead) -- Only for their types.
  for i, id in ipairs(ids) do
    local text = leases[i]
    local at = text and by ~= '' and string.match(text, '^%S+ %S+ %S+ ()')
    letters[i] = 'm'
    if seen[id] then
      -- It is gone by then.
    elseif at and string.sub(text, at, at + #by - 1) == by and string.sub(text, at, at + 4) ~= 'move:' then
      letters[i], held[#held + 1], ended[#ended + 1] = 'a', id, id
    elseif call('ZSCORE', active, id) then
      if not isTransferred(text) then
        letters[i], held[#held + 1], cancelled[#cancelled + 1], superseded[#superseded + 1] = 'c', id, id, i
      end
    elseif all and (call('ZSCORE', pending, id) or call('ZSCORE', dead, id)) then
      letters[i], cancelled[#cancelled + 1] = 'c', id
    end
    seen[id] = true
  end
  -- in a partition: local records = #ended > 0 and try('HMGET', meta, unpack(ended)) or {}

  -- First writes: they free memory, so a full server also accepts the rest.
  if #held > 0 then call('ZREM', active, unpack(held)) end
  if #cancelled > #superseded then call('ZREM', pending, unpack(cancelled)) call('ZREM', dead, unpack(cancelled)) end
  for _, i in ipairs(superseded) do supersede(ids[i], leases[i]) end
  if #ended > 0 then call('HDEL', lease, unpack(ended)) end
  for name, gone in pairs({ acked = ended, cancelled = cancelled }) do
    if #gone > 0 then
      -- try: if these keys have another type, nothing in them belongs to the jobs.
      try('HDEL', payload, unpack(gone))
      try('HDEL', meta, unpack(gone))
      try('HINCRBY', stats, name, #gone)
    end
  end
  -- in a partition: if #ended > 0 then remember(ended, records) end
  -- Another caller may be bringing what is remembered to its new partition.
  -- in a partition: local grows = string.find(known, ' from ', 1, true)
  -- in a partition: if #cancelled > 0 and not grows then call('ZREM', done, unpack(cancelled)) end
  -- in a partition: freed(#held, maxActive)
  return letters
end
