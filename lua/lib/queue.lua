-- Opens every script on a queue: names its keys, in the order of KEY_ORDER in src/store/keys.ts, and refuses a caller that
-- believes another layout (docs/internals/partitions.md). `channel`: only on a cluster, where messages go to one slot.
-- `uses`: the features that the queue uses (docs/reference/keys.md#config), nil: none.
local call, try = redis.call, redis.pcall
local pending, active, lease, dead, payload, meta, stats, config, done, every, occurs, channel = unpack(KEYS)
local known, pollMs = table.remove(ARGV), POLL_MS
local layout, uses = unpack(call('HMGET', config, 'layout', 'uses'))
if layout or uses or known ~= ONE_PARTITION then
  local plain = layout or ONE_PARTITION
  layout = plain .. (uses and string.find(uses, 'texts', 1, true) and ' texts' or '')
  -- With a star: whatever the payloads are.
  if layout ~= known and plain .. ' *' ~= known then
    return redis.error_reply('LAYOUT the queue has layout ' .. layout .. ', this call is for layout ' .. known
      .. '; partitions: ' .. (call('HGET', config, 'partitions') or 'none'))
  end
  if not string.find(known, ONE_PARTITION, 1, true) then pollMs = PART_POLL_MS end
end
