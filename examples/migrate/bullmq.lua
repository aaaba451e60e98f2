-- Prints the delayed and waiting jobs of a BullMQ queue as lines for "delayq enqueue --jobs". It only reads.
-- Usage: redis-cli --raw EVAL "$(cat bullmq.lua)" 1 bull:QUEUE [NAME]      (NAME: only jobs of this name)
local queue, name = KEYS[1], ARGV[1]
local lines = {}

local function add(id, ms)
  local key = queue .. ':' .. id
  local job = redis.call('HMGET', key, 'name', 'data', 'opts', 'atm', 'parentKey')
  -- The next run of a job scheduler is no job to copy: the scheduler would make it again.
  if not job[2] or id:find('^repeat:') or (name and job[1] ~= name) then return end
  -- A job of a flow stays: its parent waits for it, or it for the results of its children.
  if job[5] or redis.call('EXISTS', key .. ':processed', key .. ':dependencies') > 0 then return end
  -- BullMQ tries a job once unless "attempts" says more; "atm" counts the attempts made.
  local attempts = tonumber(cjson.decode(job[3] or '{}').attempts) or 1
  local tries = math.max(1, attempts - (tonumber(job[4]) or 0))
  local at = ms and string.format(',"at":"@%.0f.%03.0f"', (ms - ms % 1000) / 1000, ms % 1000) or ''
  local head = string.format('{"id":%s%s,"tries":%d', cjson.encode('bullmq:' .. id), at, tries)
  lines[#lines + 1] = head .. ',"payload":' .. job[2] .. '}'
end

local delayed = redis.call('ZRANGE', queue .. ':delayed', 0, -1, 'WITHSCORES')
-- A score is the due time in ms, times 4096, plus a counter.
for i = 1, #delayed, 2 do add(delayed[i], math.floor(delayed[i + 1] / 4096)) end
for _, id in ipairs(redis.call('ZRANGE', queue .. ':prioritized', 0, -1)) do add(id) end
for _, list in ipairs({ ':wait', ':paused' }) do
  -- The next one stands at the end of the list. Older versions keep a marker in it, "0:" and a time.
  local ids = redis.call('LRANGE', queue .. list, 0, -1)
  for i = #ids, 1, -1 do if not ids[i]:find('^0:') then add(ids[i]) end end
end
return lines
