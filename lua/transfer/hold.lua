-- Reserves jobs for a move to another queue: they become active with a lease that never expires. Takes over jobs that
-- an unfinished move to the same queue holds.
-- ARGV   1 states from which to take, a letter each (p pending, d dead), 2 receipt, 3 holder (move:QUEUE),
--        4 most payload bytes (one job at least), then the ids
-- Reply  now, then for each job, until the bytes are used up: a letter (p or d: held now, and its state before; a
--        active; o no payload; m in none of these states), and its score, token, record, payload (each nil unless held;
--        the score of what is not there: until when its id is remembered)
-- Atomic because a job must be in only one set, and nobody may take it while it is moved.
-- include lib/prelude
local receipt, by, budget = ARGV[2], ARGV[3], tonumber(ARGV[4])
if not atLeast(1, ARGV[4]) then return BAD end
local reply, seen, bytes = { now }, {}, 0
local freed, fromPending, fromDead, ends, leased = {}, {}, {}, {}, {}
local function stood(state, set, id)
  local score = string.find(ARGV[1], state, 1, true) and call('ZSCORE', set, id)
  return score and state, score
end
for i = 5, #ARGV do
  local id = ARGV[i]
  bytes = bytes + call('HSTRLEN', payload, id)
  if i > 5 and bytes > budget then break end
  local letter, score, token = 'm', false, receipt
  local ending = call('ZSCORE', active, id)
  if ending then
    -- The lease of a move: receipt, score, since, holder, state before, token. A takeover keeps the token.
    local was, who, state, word = string.match(call('HGET', lease, id) or '', '^%S+ (%S+) %S+ (%S+) ([pd]) (%S+)$')
    letter = 'a'
    if ending == 'inf' and who == by then letter, score, token = state, was, word end
  else
    letter, score = stood('p', pending, id)
    if not letter then letter, score = stood('d', dead, id) end
  end
  if not letter or seen[id] then letter, score = 'm', false end
  seen[id] = true
  local body = score and call('HGET', payload, id) or false
  if score and not body then letter, score = 'o', false end
  local told = score
  if letter == 'm' or letter == 'o' then told = call('ZSCORE', done, id) end
  reply[#reply + 1], reply[#reply + 2], reply[#reply + 3] = letter, told, score and token
  reply[#reply + 1], reply[#reply + 2] = score and call('HGET', meta, id), body
  if score then
    freed[#freed + 1] = id
    if not ending then
      local from = letter == 'p' and fromPending or fromDead
      from[#from + 1] = id
    end
    ends[#ends + 1], ends[#ends + 2] = 'inf', id
    leased[#leased + 1] = id
    leased[#leased + 1] = table.concat({ receipt, score, string.format('%.0f', now), by, letter, token }, ' ')
  end
end
if #freed > 0 then
  -- First write: it frees memory, so a full server also accepts the rest.
  call('HDEL', lease, unpack(freed))
  if #fromPending > 0 then call('ZREM', pending, unpack(fromPending)) end
  if #fromDead > 0 then call('ZREM', dead, unpack(fromDead)) end
  call('ZADD', active, unpack(ends))
  call('HSET', lease, unpack(leased))
end
return reply
