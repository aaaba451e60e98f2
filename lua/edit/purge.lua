-- Removes the first jobs of some states. With all states, removes everything once no job is active. What is remembered
-- of jobs that were done stays.
-- ARGV   1 states, a letter each (p pending, a active, d dead), 2 most jobs to remove one by one, perhaps 3 'due': only
--        jobs whose time has come; only with p alone
-- Reply  how many were removed: pending, active, dead; 1 if there is more to remove. What a growth is moving counts in its
--        new partition.
-- Atomic because a job must be removed completely, and a payload of a new job must not be taken for an orphan.
-- include lib/prelude
-- include lib/transferred
-- in a partition: -- include lib/freed
if not atLeast(1, ARGV[2]) then return BAD end
-- The states whose jobs are removed one by one, even if all jobs are to be removed.
local slow = { 'a' }
-- in a partition: slow = { 'a', 'd' }
-- in a partition: local remembered, onceFor = call('ZCARD', done), call('HGET', config, 'onceFor')
-- in a partition: -- include lib/done
local left, removed, gone = math.min(tonumber(ARGV[2]), 250), { p = 0, a = 0, d = 0 }, {}
local sets, all, more, upTo = { a = active, d = dead, p = pending }, true, false, ARGV[3] == 'due' and now or '+inf'
for letter in pairs(sets) do all = all and string.find(ARGV[1], letter, 1, true) ~= nil end
for _, letter in ipairs(all and slow or { 'a', 'd', 'p' }) do
  if left > 0 and string.find(ARGV[1], letter, 1, true) then
    local ids = call('ZRANGEBYSCORE', sets[letter], '-inf', upTo, 'LIMIT', 0, left)
    local leases = letter == 'a' and #ids > 0 and call('HMGET', lease, unpack(ids))
    -- First write: it frees memory, so a full server also accepts the rest.
    if #ids > 0 then call('ZREMRANGEBYRANK', sets[letter], 0, #ids - 1) end
    local elsewhere = 0
    for i, id in ipairs(ids) do
      gone[#gone + 1] = id
      if leases then supersede(id, leases[i]) end
      if leases and isTransferred(leases[i]) then elsewhere = elsewhere + 1 end
    end
    -- in a partition: if letter == 'd' then remember(ids) end
    removed[letter], left = #ids - elsewhere, left - #ids
  end
end
drop(gone)
-- Only holders of leases must be informed, and windows of dead jobs begin. All other jobs go at once, and Redis frees
-- their memory in the background.
local isRest = all and call('EXISTS', active) == 0
-- in a partition: isRest = isRest and call('EXISTS', dead) == 0
if isRest then
  removed.p, removed.d = call('ZCARD', pending), removed.d + call('ZCARD', dead)
  call('UNLINK', pending, dead)
end
if call('EXISTS', pending, active, dead) == 0 then
  -- What is left belongs to no job. Keep only superseded leases, whose value is a single number.
  call('UNLINK', payload, meta)
  local fields = call('EXISTS', lease) == 1 and call('HRANDFIELD', lease, 200, 'WITHVALUES') or {}
  for i = 1, #fields, 2 do
    if string.find(fields[i + 1], ' ', 1, true) then more = call('HDEL', lease, fields[i]) == 1 end
  end
end
for letter, set in pairs(sets) do
  if string.find(ARGV[1], letter, 1, true) and call('ZCOUNT', set, '-inf', upTo) > 0 then more = true end
end
count('purged', removed.p + removed.a + removed.d)
-- in a partition: freed(removed.a)
return { removed.p, removed.a, removed.d, more and 1 or 0 }
