-- Returns who holds the leases that expire first. Writes nothing.
-- ARGV   1 how many active jobs to check (at most 250)
-- Reply  now, active jobs, how many were checked, then for each holder: name ('': unknown), how many of these jobs it
--        holds, since when it has held the oldest ('': unknown), when the first of its leases expires
-- Atomic because a lease and its expiry are in two keys.
-- include lib/prelude
if not atLeast(1, ARGV[1]) then return BAD end
local found = call('ZRANGE', active, 0, math.min(tonumber(ARGV[1]), 250) - 1, 'WITHSCORES')
local ids = {}
for i = 1, #found, 2 do ids[#ids + 1] = found[i] end
local leases = #ids > 0 and call('HMGET', lease, unpack(ids)) or {}

local order, holders = {}, {}
for i = 1, #ids do
  local since, by = string.match(leases[i] or '', '^%S+ %S+ (%S+) (.*)$')
  -- Other software may have written a long text: keep the reply small.
  by = string.sub(by or '', 1, 200)
  -- Of a move, only where it moves jobs: not how each was before, and its token.
  by = string.match(by, '^(move:%S+) [pd] %S+$') or by
  local holder = holders[by]
  if not holder then
    holder = { by, 0, math.huge, found[2 * i] }
    holders[by], order[#order + 1] = holder, holder
  end
  holder[2], holder[3] = holder[2] + 1, math.min(holder[3], tonumber(since) or math.huge)
end

local reply = { now, call('ZCARD', active), #ids }
for _, holder in ipairs(order) do
  reply[#reply + 1], reply[#reply + 2] = holder[1], holder[2]
  reply[#reply + 1], reply[#reply + 2] = holder[3] < math.huge and string.format('%.0f', holder[3]) or '', holder[4]
end
return reply
