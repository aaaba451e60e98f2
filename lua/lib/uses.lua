-- include lib/queue
-- include lib/now
-- Writes into `layout` which features the queue uses, so that scripts look at the settings and keys of no others. Call
-- it after the first write. `window`: a job has a window of its own.
local function noteUses(window)
  local set = call('HMGET', config, 'rate', 'maxActive', 'onceFor', 'text',
    'paused', 'tries', 'maxLost', 'ttl', 'lease', 'backoff', 'events', 'keepDone')
  local words = {}
  local function note(word, isUsed) if isUsed then words[#words + 1] = word end end
  for i = 5, 10 do
    if set[i] then note('settings', true) break end
  end
  note('rate', set[1])
  note('maxActive', set[2])
  -- While there are records, one of them may have a window.
  local mayHave = uses and string.find(uses, 'windows', 1, true) and call('EXISTS', meta) == 1
  note('windows', set[3] or window or mayHave or call('EXISTS', done) == 1)
  -- Scripts that cannot change it do not get its keys.
  local isSaid = uses and string.find(uses, 'recurring', 1, true)
  note('recurring', every and call('EXISTS', every, occurs) > 0 or not every and isSaid)
  note('texts', set[4] == '1')
  -- What is off keeps nothing.
  local function noteKept(word, isUsed, ...)
    note(word, isUsed)
    if isUsed or not (uses and string.find(uses, word, 1, true)) then return end
    for _, name in ipairs({ ... }) do try('UNLINK', string.sub(pending, 1, -8) .. name) end
  end
  noteKept('events', set[11], 'events')
  noteKept('results', set[12], 'finished', 'results')
  -- Words of newer versions stay.
  for word in string.gmatch(uses or '', '%S+') do
    note(word, not string.find(FEATURES, ' ' .. word .. ' ', 1, true))
  end
  call('HDEL', config, 'layout')
  local says = layout .. (#words > 0 and ' uses ' .. table.concat(words, ' ') or '')
  if says ~= ONE_PARTITION then call('HSET', config, 'layout', says) end
end

-- Marks a change of the settings or the pause by a time, later than that of the change before: partitions take over
-- only newer ones. Not in the hash config, which a queue without settings need not have.
local function noteChange()
  local version = math.max(now, (tonumber(try('HGET', stats, 'configured')) or 0) + 1)
  try('HSET', stats, 'configured', string.format('%.0f', version))
end
