-- Remembers the ids of jobs that have ended, until their windows close (docs/internals/once.md). Only in queues of
-- layout 2. Needs `remembered`, the size of `done`: asked before the first write, so that a key of another type fails the
-- call. `remember` also needs `onceFor`, the setting.

-- Removes up to `most` ids whose windows have closed.
local function sweep(most)
  local closed = remembered > 0 and call('ZCOUNT', done, '-inf', now) or 0
  if closed > 0 then call('ZREMRANGEBYRANK', done, 0, math.min(closed, most) - 1) end
end

-- Opens the windows of jobs that end now; `records`, if given, are theirs. Removes more than it adds, so that memory
-- does not grow.
local function remember(ids, records)
  local ends = {}
  records = records or #ids > 0 and call('HMGET', meta, unpack(ids)) or {}
  for i, id in ipairs(ids) do
    -- No other place of a record can have this text: quotes inside of texts are escaped.
    local window = tonumber(string.match(records[i] or '', '"once":(%d+)')) or tonumber(onceFor) or 0
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
