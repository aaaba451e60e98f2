-- include lib/queue
-- include lib/now
-- Counters and samples. try: what other software has written there must not stop a script.

-- Adds n to a counter. Returns its new value; false if nothing was written. An n that is too large comes from a due
-- time that makes no sense.
local function count(name, n)
  local total = n > 0 and n <= 1e15 and try('HINCRBY', stats, name, string.format('%d', n))
  return type(total) == 'number' and total
end

-- Stores the state of the queue in a ring of sixteen samples, one a minute, so that inspect can show rates and a trend
-- at once. Call it before the script counts, so that the sample excludes the script's own work; but after its first
-- write, which decides whether a full server accepts the call.
local function sample()
  local minute = math.floor(now / 60000)
  if tonumber(try('HGET', stats, 'sampled')) == minute then return end
  local n = try('HMGET', stats, 'enqueued', 'delivered', 'acked', 'removed', 'retried', 'dead')
  local due, size = try('ZCOUNT', pending, '-inf', now), try('ZCARD', pending)
  local head = try('ZRANGE', pending, 0, 0, 'WITHSCORES')
  if n.err or head.err or type(due) ~= 'number' or type(size) ~= 'number' then return end
  for i = 1, 6 do n[i] = tonumber(n[i]) or 0 end
  try('HSET', stats, 'sampled', minute, 'at:' .. minute % 16, string.format(
    '%.0f %.0f %.0f %.0f %.0f %.0f %.0f %s %.0f', now, n[1], n[2], n[3] + n[4], n[5], n[6], due, head[2] or '-', size))
end
