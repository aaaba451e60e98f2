-- include lib/queue
-- include lib/now
-- include lib/uses
-- Remembers the ids of jobs that have ended, until their windows close (docs/internals/once.md).
local hasWindows = uses and string.find(uses, 'windows', 1, true) ~= nil
local remembered, onceFor = 0, nil
-- Asked before the first write, so that a key of another type fails the call.
if hasWindows then remembered, onceFor = call('ZCARD', done), call('HGET', config, 'onceFor') end

-- The window in a record, ms. No other place of a record can have this text: quotes inside of texts are escaped.
local function windowIn(record)
  return tonumber(string.match(record or '', '"once":(%d+)'))
end

-- Notes that a job of the queue has a window of its own.
local function openWindow()
  if not hasWindows then noteUses(true) end
  hasWindows = true
end

-- Removes up to `most` ids whose windows have closed.
local function sweep(most)
  local closed = remembered > 0 and call('ZCOUNT', done, '-inf', now) or 0
  if closed > 0 then call('ZREMRANGEBYRANK', done, 0, math.min(closed, most) - 1) end
  if hasWindows and not onceFor and remembered <= math.min(closed, most) and call('EXISTS', done, meta) == 0 then
    noteUses(false)
  end
end

-- Opens the windows of jobs that end now; `records`, if given, are theirs. Removes more than it adds, so that memory
-- does not grow.
local function remember(ids, records)
  if not hasWindows then return end
  local ends = {}
  records = records or #ids > 0 and call('HMGET', meta, unpack(ids)) or {}
  for i, id in ipairs(ids) do
    local window = windowIn(records[i]) or tonumber(onceFor) or 0
    if window > 0 then
      ends[#ends + 1], ends[#ends + 2] = string.format('%.0f', math.min(now + window, 1e15)), id
    end
  end
  if #ends > 0 then call('ZADD', done, 'GT', unpack(ends)) end
  sweep(#ends > 0 and #ends or 100)
end

local function isRemembered(id)
  return remembered > 0 and (tonumber(call('ZSCORE', done, id)) or 0) > now
end
