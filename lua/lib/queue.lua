-- Opens every script on a queue: names its keys, in the order of KEY_TYPES in src/store/keys.ts, and refuses a caller
-- that believes another layout (docs/internals/partitions.md). `channel`: only on a cluster, where messages go to one
-- slot. `uses`: the features that the queue uses (docs/reference/keys.md#config); nil: none.
local call, try = redis.call, redis.pcall
local pending, active, lease, dead, payload, meta, stats, config, done, every, occurs, channel = unpack(KEYS)
local known, pollMs, uses = table.remove(ARGV), POLL_MS, nil
local layout = call('HGET', config, 'layout') or ONE_PARTITION
if layout ~= known then
  local at, stated = string.find(layout, ' uses ', 1, true), layout
  if at then
    layout, uses = string.sub(layout, 1, at - 1), string.sub(layout, at + 6)
    stated = string.find(uses, 'texts', 1, true) and layout .. ' texts' or layout
  end
  -- With a star: whatever the payloads are.
  if stated ~= known and layout .. ' *' ~= known then
    return redis.error_reply('LAYOUT the queue has layout ' .. stated .. ', this call is for layout ' .. known
      .. '; partitions: ' .. (call('HGET', config, 'partitions') or 'none'))
  end
end
if layout ~= ONE_PARTITION then pollMs = PART_POLL_MS end
