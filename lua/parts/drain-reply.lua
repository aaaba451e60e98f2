-- Replies what drain-batch.lua has taken, and when there will be more.
local function first(set) return tonumber(call('ZRANGE', set, '0', '0', 'WITHSCORES')[2]) or math.huge end
local due, back = first(pending), first(active)
local state, soonest = (due <= cutoff or back <= now) and 'more' or 'idle', math.min(due, back)
-- in a partition: soonest = math.min(soonest, occurred)
soonest = soonest < math.huge and math.ceil(soonest) or -1
-- in a partition: local traits = texts and 2 or 0
-- in a partition: -- include parts/limited
-- in a partition: if traits > 0 then reply[#reply + 1] = traits end
return { state, now, soonest, expired, #lost, died, tries, leaseMs, unpack(reply) }
