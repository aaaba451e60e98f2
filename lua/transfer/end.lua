-- Ends what hold.lua began: removes jobs that are in the other queue now, and puts the others back where they were.
-- ARGV   for each job id, receipt, m (moved: remove it) or b (put it back)
-- Reply  now, a letter for each job: h held, and done, l lost (another move took over), s superseded
-- Atomic because only the holder of the current lease may remove a job, and it must be in only one set.
-- include lib/prelude
-- include lib/growth
local ids, letters, leases = checkLeases(1, 3)
local gone, transferred, soonest = {}, 0, math.huge
for i, id in ipairs(ids) do
  -- First write: it frees memory, so a full server also accepts the rest. An id given twice is gone by then.
  if letters[i] == 'h' and call('ZREM', active, id) == 0 then letters[i] = 'l' end
  if letters[i] == 'h' then
    call('HDEL', lease, id)
    if ARGV[3 * i] == 'm' then
      gone[#gone + 1] = id
      -- To another partition of the same queue.
      if isTransferred(leases[i]) then
        transferred = transferred + 1
      elseif tell then
        tell('moved', id, nil, nil, nil, string.match(leases[i], ' move:(%S+) '))
      end
    else
      local score, state = string.match(leases[i], '^%S+ (%S+) %S+ %S+ ([pd]) %S+$')
      local at = tonumber(score) or now
      countReturned({ id })
      call('ZADD', state == 'd' and dead or pending, string.format('%.17g', at), id)
      if state ~= 'd' then soonest = math.min(soonest, at) end
    end
  elseif letters[i] == 's' then
    call('HDEL', lease, ARGV[3 * i - 1] .. ' ' .. id)
  end
end
drop(gone)
count('moved', #gone - transferred)
if transferred > 0 then try('HINCRBY', config, 'carried', transferred) end
wake(soonest)
return { now, table.concat(letters) }
