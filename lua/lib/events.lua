-- include lib/queue
-- Tells what happens to jobs, in the stream of events (docs/reference/keys.md#events). nil: the queue keeps none.
local tell
if uses and string.find(uses, 'events', 1, true) then
  local set = call('HMGET', config, 'events', 'eventTypes')
  local most, types, events = set[1] or '0', set[2], string.sub(pending, 1, -8) .. 'events'
  -- Each entry has the same fields: then Redis stores their names once for about a hundred. try: after the first write
  -- nothing may fail.
  tell = function(kind, id, by, attempt, due, reason, error)
    if types and not string.find(types, ' ' .. kind .. ' ', 1, true) then return end
    if type(due) == 'number' then due = string.format('%.17g', due) end
    try('XADD', events, 'MAXLEN', '~', most, '*', 'type', kind, 'id', id, 'by', by or '', 'attempt', attempt or '',
      'due', due or '', 'reason', reason or '', 'error', error or '')
  end
end

-- Which attempt a job is at that has this record. No other place of it can have these texts: quotes inside of texts are
-- escaped.
local function attemptOf(record)
  if type(record) ~= 'string' then return 1 end
  return 1 + (tonumber(string.match(record, '"failures":(%d+)')) or 0)
    + (tonumber(string.match(record, '"losses":(%d+)')) or 0)
end

-- Who holds a lease.
local function holderIn(held)
  return string.match(held or '', '^%S+ %S+ %S+ (.*)')
end
