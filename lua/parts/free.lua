-- Frees remembered ids, for cancel.lua.
local keeps = string.find(ARGV[1], 'k', 1, true)
for _, id in ipairs(string.find(known, ' from ', 1, true) and not keeps and ids or {}) do
  -- Another caller may have read it where it was before, and would bring it back.
  if isRemembered(id) then
    return redis.error_reply('GROWING the queue is growing, and ' .. id .. ' is remembered')
  end
end

-- Frees an id that is no job.
local function isFreed(id)
  local isLive = call('ZSCORE', pending, id) or call('ZSCORE', active, id) or call('ZSCORE', dead, id)
  return not keeps and not isLive and isRemembered(id) and call('ZREM', done, id) == 1
end

-- What becomes of the ids of jobs that were removed. An earlier job of one may be remembered, too.
local function settle(gone)
  if keeps then remember(gone) elseif #gone > 0 then call('ZREM', done, unpack(gone)) end
end
