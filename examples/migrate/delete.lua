-- For delete.sh: removes waiting jobs from the queue of another system, by their ids in delayq, one a line.
-- KEYS: the queue; for delayqueue also where its payloads are. Returns how many it removed, or found ("count").
local queue, messages, system, act = KEYS[1], KEYS[2] or KEYS[1], ARGV[1], ARGV[2]

local wanted = {}
local prefix = (system == 'lmstfy' or system == 'sidekiq') and '' or system .. ':'
for id in ARGV[3]:gmatch('[^\n]+') do
  if id:sub(1, #prefix) == prefix then wanted[id:sub(#prefix + 1)] = true end
end

-- Where waiting jobs are, and what removes the rest of a job.
local before = queue:match('^(.*)queue:') or ''
local systems = {
  asynq = {
    sets = { queue .. ':scheduled', queue .. ':retry' },
    lists = { queue .. ':pending' },
    forget = function(id)
      local unique = redis.call('HGET', queue .. ':t:' .. id, 'unique_key')
      if unique and unique ~= '' and redis.call('GET', unique) == id then redis.call('DEL', unique) end
      redis.call('DEL', queue .. ':t:' .. id)
    end,
  },
  bullmq = {
    sets = { queue .. ':delayed', queue .. ':prioritized' },
    lists = { queue .. ':wait', queue .. ':paused' },
    forget = function(id)
      local once = redis.call('HGET', queue .. ':' .. id, 'deid')
      if once and redis.call('GET', queue .. ':de:' .. once) == id then redis.call('DEL', queue .. ':de:' .. once) end
      redis.call('DEL', queue .. ':' .. id, queue .. ':' .. id .. ':logs')
    end,
  },
  delayqueue = {
    sets = { queue .. ':pending', queue .. ':unack' },
    lists = { queue .. ':ready', queue .. ':retry' },
    forget = function(id)
      redis.call('DEL', messages .. ':msg:' .. id)
      redis.call('HDEL', queue .. ':retry:cnt', id)
    end,
  },
  sidekiq = {
    sets = { before .. 'schedule', before .. 'retry' },
    lists = { queue },
    forget = function() end,
    -- The job itself is the member.
    idOf = function(member)
      local good, job = pcall(cjson.decode, member)
      return good and type(job) == 'table' and job.jid
    end,
  },
}

local found, n = {}, 0
local function take(id)
  if not found[id] then n = n + 1 end
  found[id] = true
  return act == 'delete'
end

if system == 'lmstfy' then
  -- A job is gone when its body is.
  for id in pairs(wanted) do
    local key = 'j/' .. queue .. '/' .. id
    if redis.call('EXISTS', key) == 1 and take(id) then redis.call('DEL', key) end
  end
  return n
end

local old = systems[system]
local idOf = old.idOf or function(member) return member end
for _, set in ipairs(old.sets) do
  for _, member in ipairs(redis.call('ZRANGE', set, 0, -1)) do
    local id = idOf(member)
    if wanted[id] and take(id) then redis.call('ZREM', set, member) end
  end
end
for _, list in ipairs(old.lists) do
  -- From the end on, where the copied ones stand.
  local members = redis.call('LRANGE', list, 0, -1)
  for i = #members, 1, -1 do
    local id = idOf(members[i])
    if wanted[id] and take(id) then redis.call('LREM', list, -1, members[i]) end
  end
end
if act == 'delete' then
  for id in pairs(found) do old.forget(id) end
end
return n
