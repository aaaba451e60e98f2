-- Returns all counts of a queue. Writes nothing.
-- ARGV   1 how many of the next due times to list, then any number of times, ms from now
-- Reply  now; sizes of pending, active, lease, dead, payload, meta; how many jobs are due, how many leases have
--        expired; oldest due time ('': none); next due times (id, ms …); stats (name, value …); config (name, value …);
--        for each of the given times, how many jobs are due by then; number of recurring jobs, the next occurrence of
--        one ('': none), how many ids are remembered; of how many leases it names the holders: those that expire first;
--        for each holder: name ('': unknown), how many of these jobs it holds, since when it has held the oldest ('':
--        unknown), when the first of its leases expires; of INFO ('': not allowed, or not there)
--        used_memory, mem_not_counted_for_evict, maxmemory, maxmemory_policy, aof_last_write_status,
--        rdb_last_bgsave_status; how many events and how many jobs that are done are kept
-- Atomic because counts of different moments may not add up, and a healthy queue would look broken.
-- include lib/prelude
local dueBy = {}
for i = 2, #ARGV do dueBy[i - 1] = call('ZCOUNT', pending, '-inf', string.format('%.0f', now + ARGV[i])) end

-- Up to 250 leases: about 1 ms of Redis's time.
local found, ids, order, holders = call('ZRANGE', active, 0, 249, 'WITHSCORES'), {}, {}, {}
for i = 1, #found, 2 do ids[#ids + 1] = found[i] end
local leases = #ids > 0 and call('HMGET', lease, unpack(ids)) or {}
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
local held = {}
for _, holder in ipairs(order) do
  held[#held + 1], held[#held + 2] = holder[1], holder[2]
  held[#held + 1], held[#held + 2] = holder[3] < math.huge and string.format('%.0f', holder[3]) or '', holder[4]
end

local events, finished = 0, 0
if uses and string.find(uses, 'events', 1, true) then events = try('XLEN', string.sub(pending, 1, -8) .. 'events') end
if uses and string.find(uses, 'results', 1, true) then
  local since = '(' .. string.format('%.0f', now - (tonumber(call('HGET', config, 'keepDone')) or 0))
  finished = try('ZCOUNT', string.sub(pending, 1, -8) .. 'finished', since, '+inf')
end

local oldest = call('ZRANGE', pending, 0, 0, 'WITHSCORES')[2] or ''
local memory, saving = try('INFO', 'memory'), try('INFO', 'persistence')
local function said(text, name) return type(text) == 'string' and string.match(text, '\n' .. name .. ':(%S+)') or '' end
return {
  now,
  call('ZCARD', pending), call('ZCARD', active), call('HLEN', lease),
  call('ZCARD', dead), call('HLEN', payload), call('HLEN', meta),
  call('ZCOUNT', pending, '-inf', now), call('ZCOUNT', active, '-inf', now),
  oldest,
  call('ZRANGEBYSCORE', pending, '(' .. string.format('%.0f', now), '+inf', 'WITHSCORES', 'LIMIT', 0, ARGV[1]),
  call('HGETALL', stats), call('HGETALL', config), dueBy,
  call('HLEN', every), call('ZRANGE', occurs, 0, 0, 'WITHSCORES')[2] or '',
  call('ZCOUNT', done, '(' .. string.format('%.0f', now), '+inf'),
  #ids, held,
  said(memory, 'used_memory'), said(memory, 'mem_not_counted_for_evict'), said(memory, 'maxmemory'),
  said(memory, 'maxmemory_policy'), said(saving, 'aof_last_write_status'), said(saving, 'rdb_last_bgsave_status'),
  type(events) == 'number' and events or 0, type(finished) == 'number' and finished or 0,
}
