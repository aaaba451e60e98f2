-- Names the keys and reads the clock.
-- include lib/keys
local clock = call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
