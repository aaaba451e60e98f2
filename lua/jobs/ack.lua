-- Removes finished jobs.
-- ARGV   for each job id, receipt. Of a queue that keeps results: '', then for each job id, receipt, how long its
--        handler ran, ms, and what came out ('': nothing)
-- Reply  a letter for each job: h held, so it was removed, l lost, s superseded
-- Atomic because only the holder of the current lease may remove a job, and it could change between check and removal.
-- include lib/queue
local isShort = #ARGV == 2
  and not (uses and (string.find(uses, 'windows', 1, true) or string.find(uses, 'results', 1, true)))

-- One job that is held: nearly every call of a worker that handles one at a time.
local held = isShort and call('HGET', lease, ARGV[1])
if held and string.find(held, ARGV[2] .. ' ', 1, true) == 1 then
  -- include lib/done
  removeHeld(ARGV[1], held)
  return 'h'
end

-- A function: its many locals would cost each call that takes the short way.
local function ackMany()
  -- include lib/leases
  -- include lib/windows
  -- include lib/wake
  -- include lib/results
  local first, step = 1, 2
  if ARGV[1] == '' then first, step = 2, 4 end
  local ids, letters, leases = checkLeases(first, step)
  local ended, superseded, theirs, took, said = {}, {}, {}, {}, {}
  for i, id in ipairs(ids) do
    if letters[i] == 'h' then
      local n = #ended + 1
      ended[n] = id
      if tell or keepDone then
        local at = first + (i - 1) * step
        theirs[n], took[n], said[n] = leases[i], step == 4 and ARGV[at + 2], step == 4 and ARGV[at + 3] or ''
      end
    elseif letters[i] == 's' then
      superseded[#superseded + 1] = ARGV[first + (i - 1) * step + 1] .. ' ' .. id
    end
  end
  if #ended > 0 then
    local records = (hasWindows or tell or keepDone) and try('HMGET', meta, unpack(ended)) or {}
    local gone = call('ZREM', active, unpack(ended))
    call('HDEL', lease, unpack(ended))
    try('HDEL', payload, unpack(ended))
    if try('HLEN', meta) ~= 0 then try('HDEL', meta, unpack(ended)) end
    if gone > 0 then try('HINCRBY', stats, 'acked', gone) end
    remember(ended, records)
    if keepDone then keepDone(ended, theirs, records, took, said) end
    local told = {}
    for i, id in ipairs(tell and ended or {}) do
      -- An id given twice was done once.
      if not told[id] then tell('acked', id, holderIn(theirs[i]), attemptOf(records[i])) end
      told[id] = true
    end
    freed(gone)
  end
  -- The holder knows now, and nobody else will ask.
  if #superseded > 0 then call('HDEL', lease, unpack(superseded)) end
  return table.concat(letters)
end
return ackMany()
