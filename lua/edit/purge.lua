-- Removes the first jobs of some states. With all states, removes everything once no job is active. What is remembered
-- of jobs that were done stays. What a growth is moving stays, too: it is removed in its new partition, where it will
-- be, or is already. What a move to another queue holds is removed only with all states: no consumer has it.
-- ARGV   1 states, a letter each (p pending, a active, d dead), 2 most jobs to remove one by one, perhaps 3 'due': only
--        jobs whose time has come; only with p alone
-- Reply  how many were removed: pending, active, dead; 1 if there is more to remove
-- Atomic because a job must be removed completely, and a payload of a new job must not be taken for an orphan.
-- include lib/prelude
-- include lib/windows
if not atLeast(1, ARGV[2]) then return BAD end
local left, removed, gone = math.min(tonumber(ARGV[2]), 250), { p = 0, a = 0, d = 0 }, {}
local sets, all, more, upTo = { a = active, d = dead, p = pending }, true, false, ARGV[3] == 'due' and now or '+inf'
for letter in pairs(sets) do all = all and string.find(ARGV[1], letter, 1, true) ~= nil end
local onTheWay = all and ' move:%S+/%d+ ' or ' move:%S+ [pd] %S+$'

-- The first active jobs to remove, at most n, and their leases.
local function firstActive(n)
  local ids = call('ZRANGEBYSCORE', active, '-inf', '(inf', 'LIMIT', 0, n)
  if #ids > 0 then return ids, call('HMGET', lease, unpack(ids)) end
  -- Moves hold some hundred at a time.
  local held, leases = call('ZRANGEBYSCORE', active, 'inf', 'inf', 'LIMIT', 0, 2000), {}
  for i, text in ipairs(#held > 0 and call('HMGET', lease, unpack(held)) or {}) do
    if #ids < n and not string.find(text or '', onTheWay) then
      ids[#ids + 1], leases[#leases + 1] = held[i], text
    end
  end
  return ids, leases
end

-- The states whose jobs are removed one by one, even if all jobs are to be removed.
local isSlow = { a = true, d = hasWindows or not all, p = not all }
for _, letter in ipairs({ 'a', 'd', 'p' }) do
  if left > 0 and isSlow[letter] and string.find(ARGV[1], letter, 1, true) then
    local ids, leases
    if letter == 'a' then
      ids, leases = firstActive(left)
    else
      ids = call('ZRANGEBYSCORE', sets[letter], '-inf', upTo, 'LIMIT', 0, left)
    end
    -- First write: it frees memory, so a full server also accepts the rest.
    if #ids > 0 then call('ZREM', sets[letter], unpack(ids)) end
    for i, id in ipairs(ids) do
      gone[#gone + 1] = id
      if leases then supersede(id, leases[i]) end
      if tell then tell('purged', id) end
    end
    if letter == 'd' then remember(ids) end
    removed[letter], left = #ids, left - #ids
  end
  -- Active jobs that are left only wait for their move.
  if letter == 'a' and all and left > 0 and call('EXISTS', active) == 1 then isSlow.d, isSlow.p = true, true end
end
drop(gone)
local slowly = removed.d
-- Only holders of leases must be informed, and windows of dead jobs begin. All other jobs go at once, and Redis frees
-- their memory in the background.
if all and call('EXISTS', active) == 0 and not (hasWindows and call('EXISTS', dead) == 1) then
  removed.p, removed.d = call('ZCARD', pending), removed.d + call('ZCARD', dead)
  call('UNLINK', pending, dead)
  local n = removed.p + removed.d - slowly
  if tell and n > 0 then tell('purged', '', nil, nil, nil, string.format('%d jobs', n)) end
end
if call('EXISTS', pending, active, dead) == 0 then
  -- What is left belongs to no job. Keep only marks: superseded leases, and tokens of moves.
  call('UNLINK', payload, meta)
  local fields = call('EXISTS', lease) == 1 and call('HRANDFIELD', lease, 200, 'WITHVALUES') or {}
  for i = 1, #fields, 2 do
    local isMark = string.find(fields[i + 1], '^%d+$') or string.find(fields[i + 1], '^%d+ moved$')
    if not isMark then more = call('HDEL', lease, fields[i]) == 1 end
  end
end
for letter, set in pairs(sets) do
  if string.find(ARGV[1], letter, 1, true) then
    local n = letter == 'a' and #firstActive(1) or call('ZCOUNT', set, '-inf', upTo)
    more = more or n > 0
  end
end
count('purged', removed.p + removed.a + removed.d)
freed(removed.a)
return { removed.p, removed.a, removed.d, more and 1 or 0 }
