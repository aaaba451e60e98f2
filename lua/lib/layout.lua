-- Refuses a caller that believes another layout, and tells it the right one, and whether payloads are texts. Without the
-- field, it is layout 1. Must match src/store/partitions.ts.
if (layout or '1') ~= known then
  return redis.error_reply('LAYOUT the queue has layout ' .. (layout or '1') .. ', this call is for layout ' .. known
    .. '; partitions: ' .. (call('HGET', config, 'partitions') or 'none')
    .. (call('HGET', config, 'text') == '1' and '; texts' or ''))
end
