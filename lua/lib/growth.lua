-- include lib/queue
-- What scripts do for an open growth (docs/internals/partitions.md).

-- The partition of an id, of so many. As PartitionMap.ownerOf in src/store/map.ts.
local function ownerOf(id, partitions)
  -- Jobs of recurring ones.
  if string.find(id, '@%d%d%d%d%-%d%d%-%d%dT%d%d:%d%d:%d%dZ$') then return 0 end
  -- CRC-32 of zlib and PNG (ISO 3309), four bits at a time: a table for eight would take longer to make than it saves.
  local crcs = {
    [0] = 0, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4, 0x4db26158, 0x5005713c,
    0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c, 0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c,
  }
  local crc, size = -1, 1
  while size < partitions do size = size * 2 end
  for k = 1, #id do
    crc = bit.bxor(crc, string.byte(id, k))
    crc = bit.bxor(bit.rshift(crc, 4), crcs[bit.band(crc, 15)])
    crc = bit.bxor(bit.rshift(crc, 4), crcs[bit.band(crc, 15)])
  end
  crc = bit.bnot(crc) % 4294967296
  local owner = crc % size
  return owner < partitions and owner or crc % (size / 2)
end

-- Counts those of `ids` that go back from active to pending or dead where the growth takes them from: until none does,
-- nobody can be sure to have found them all.
local function countReturned(ids)
  local at, partitions = string.match(known, ' (%d+)/(%d+) from')
  local n = 0
  for i = 1, at and #ids or 0 do
    if ownerOf(ids[i], tonumber(partitions)) ~= tonumber(at) then n = n + 1 end
  end
  if n > 0 then try('HINCRBY', config, 'returned', n) end
end
