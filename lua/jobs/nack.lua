-- Gives back jobs that are not done.
-- ARGV   1 'retry' (a failure; dead when out of tries) | 'dead' (a failure, dead at once) | 'release' (no failure) |
--        'back' (as if it had not been taken), 2 backoff: ms after the first, second … failure ('': the queue's; no
--        numbers: exponential); of a release how often a job may be released, then it is dead, 3 jitter, 0 to 1, then
--        for each job id, receipt, delay ms ('': the backoff; no failure: keep the due time), error ('': none), its
--        kind ('': the error itself)
-- Reply  now, a letter for each job: p pending, d dead, l lost, s superseded; for each job its delay ms (no failure: 0)
-- Atomic because a job must be in only one set, and only the holder of the current lease may give it back.
-- include lib/prelude
-- include lib/growth
local mode, jitter = ARGV[1], tonumber(ARGV[3])
if not atLeast(0, ARGV[3]) or (#ARGV - 3) % 5 > 0 then return BAD end
for i = 6, #ARGV, 5 do
  if not (ARGV[i] == '' or atLeast(0, ARGV[i])) then return BAD end
end
local ids, letters, leases = checkLeases(4, 5)
local settings = uses and call('HMGET', config, 'tries', 'backoff', 'ttl') or {}
local tries, steps, maxReleases = counted(settings[1], DEFAULT_TRIES), {}, tonumber(ARGV[2])
for ms in string.gmatch(ARGV[2] ~= '' and ARGV[2] or settings[2] or '', '%d+') do steps[#steps + 1] = tonumber(ms) end

-- The backoff: 15 s, 1 min, 4 min, 16 min, 1 h, each times 0.8 to 1.2. Multiples of the golden ratio spread the jobs of
-- a call evenly.
local function backoff(failures, i)
  if #steps > 0 then return steps[math.min(failures, #steps)] end
  local share = (jitter + i * 0.618033988749895) % 1
  return math.floor(math.min(15000 * 4 ^ (failures - 1), 3600000) * (0.8 + 0.4 * share))
end

-- The kinds of errors in the order of their first failures, and how many each has.
local kinds, last = {}, {}

local delays, retried, died, latest, soonest, gone = {}, 0, 0, 0, math.huge, 0
local released, worn = 0, 0
for i, id in ipairs(ids) do
  local delay, problem, kind = unpack(ARGV, 5 * i + 1, 5 * i + 3)
  delays[i] = 0
  -- First write: it frees memory, so a full server also accepts the rest. An id given twice is gone by then.
  if letters[i] == 'h' and call('ZREM', active, id) == 0 then letters[i] = 'l' end
  if letters[i] == 'h' then
    countReturned({ id })
    call('HDEL', lease, id)
    local due = dueOf(leases[i])
    letters[i], gone = 'p', gone + 1
    local rec = read(call('HGET', meta, id))
    local first, by = rec.first or due, holderIn(leases[i])
    if mode == 'release' or mode == 'back' then
      if mode == 'release' then released, rec.releases = released + 1, counted(rec.releases, 0) + 1 end
      local isWorn = mode == 'release' and maxReleases and rec.releases > maxReleases
      -- The time to live counts from the first due time, which would be lost.
      local isMoved = delay ~= '' and (rec.ttl or settings[3]) and not rec.first
      if isMoved or isWorn then rec.first = first end
      if isWorn then
        bury(id, rec, 'released', by)
        letters[i], worn = 'd', worn + 1
      else
        if delay ~= '' then due = now + tonumber(delay) end
        call('ZADD', pending, string.format('%.17g', due), id)
        if mode == 'release' or isMoved then write(id, rec) end
        if tell then
          local attempt = 1 + counted(rec.failures, 0) + counted(rec.losses, 0)
          tell(mode == 'release' and 'released' or 'returned', id, by, attempt, due)
        end
      end
    else
      rec.failures, rec.failed, rec.first = counted(rec.failures, 0) + 1, now, first
      rec.error = problem ~= '' and problem or nil
      if kind == '' then kind = problem end
      if not kinds[kind] then kinds[#kinds + 1] = kind end
      kinds[kind] = (kinds[kind] or 0) + 1
      last = { error = rec.error, by = by }
      if mode == 'dead' or isSpent(rec, rec.failures, rec.tries, tries) then
        bury(id, rec, mode == 'dead' and 'refused' or 'failed', by)
        letters[i], died = 'd', died + 1
      else
        delays[i] = math.min(tonumber(delay) or backoff(rec.failures, i), 1e14)
        due = now + delays[i]
        call('ZADD', pending, due, id)
        write(id, rec)
        if tell then tell('retried', id, by, rec.failures + counted(rec.losses, 0), due, nil, rec.error) end
        retried, latest = retried + 1, math.max(latest, due)
      end
    end
    if letters[i] == 'p' then soonest = math.min(soonest, due) end
  elseif letters[i] == 's' then
    call('HDEL', lease, ARGV[5 * i] .. ' ' .. id)
  end
end
count('retried', retried) count('dead', died + worn) count('released', released)
noteFailures(retried + died, kinds, last, latest)
wake(soonest)
freed(gone)
return { now, table.concat(letters), unpack(delays) }
