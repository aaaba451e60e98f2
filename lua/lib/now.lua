-- include lib/queue
-- The time, ms since 1970.
local clock = call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
