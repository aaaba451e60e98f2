-- Stores the state of the queue in a ring of sixteen samples, one a minute, so that inspect can show rates and a trend
-- at once. Include it before the script counts, so that the sample excludes the script's own work; but after its first
-- write, which decides whether a full server accepts the call. try as in count.lua.
local n = try('HMGET', stats, 'enqueued', 'delivered', 'acked', 'removed', 'retried', 'dead')
local due, size = try('ZCOUNT', pending, '-inf', now), try('ZCARD', pending)
local head = try('ZRANGE', pending, 0, 0, 'WITHSCORES')
if not (n.err or head.err) and type(due) == 'number' and type(size) == 'number' then
  for i = 1, 6 do n[i] = tonumber(n[i]) or 0 end
  try('HSET', stats, 'sampled', minute, 'at:' .. minute % 16, string.format(
    '%.0f %.0f %.0f %.0f %.0f %.0f %.0f %s %.0f', now, n[1], n[2], n[3] + n[4], n[5], n[6], due, head[2] or '-', size))
end
