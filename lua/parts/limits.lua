-- How many jobs this call may take: `most`; nil if the queue has no limits (docs/internals/limits.md). For drain.lua.
local most, asked, start, places, rate, burst, tokens, ticket, bucketAt = nil, limit
if limits then
  local function positive(text)
    local n = tonumber(text)
    return n and n > 0 and n <= 1e15 and n or nil
  end
  start, places = tonumber(ARGV[7]) or math.huge, positive(limits[3])
  if places and leaseMs == 0 then
    return redis.error_reply('LIMITED the queue has max-active, and jobs without a lease cannot be counted')
  elseif places and ARGV[7] == '-' then
    return redis.error_reply('LIMITED the queue has max-active, and lines in a pipe are active long before their turn')
  end
  if places then places = math.max(0, places - call('ZCOUNT', active, '(' .. stamp, '(inf')) end
  local jobs, ms = string.match(limits[1] or '', '^(%S+) (%S+)$')
  -- Tokens for each ms.
  rate = positive((tonumber(jobs) or 0) / (tonumber(ms) or 1))
  if rate then
    burst = math.max(1, positive(limits[2]) or rate * 100)
    local had, at, last = string.match(try('HGET', stats, 'bucket') or '', '^([%d.]+) (%d+) (%d+)$')
    -- Without the field the bucket is full. Its time is in the future if the clock has gone back.
    had, bucketAt, last = tonumber(had) or burst, tonumber(at) or now, tonumber(last) or 0
    tokens = math.min(burst, had + math.max(0, now - bucketAt) * rate)
    -- A full bucket: those that have the last tickets did not come.
    ticket = tokens < burst and last <= now + pollMs and last or now
  end
  most = math.max(0, math.min(limit, start, places or limit, math.floor(tokens or limit)))
  if not (places or tokens) then most = nil end
  -- Those whose time to live has passed cost no token: look at some more.
  if most then limit = math.min(limit, most + 50) end
end
