-- Names the keys and reads the clock.
-- include lib/keys
local clock = call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
-- The longest time between two polls of a waiting drain, ms. Must match POLL_MS and PART_POLL_MS in src/store/keys.ts.
local pollMs = 1000
-- in a partition: if known ~= '2 0/1' then pollMs = 5000 end
