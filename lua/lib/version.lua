-- Marks a change of the settings or the pause by a time, later than that of the change before: partitions take over only
-- newer ones. Not in the hash config, which a queue without settings need not have.
local version = math.max(now, (tonumber(try('HGET', stats, 'configured')) or 0) + 1)
try('HSET', stats, 'configured', string.format('%.0f', version))
