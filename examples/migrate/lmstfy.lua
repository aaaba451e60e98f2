-- Prints the delayed and ready jobs of a lmstfy queue as lines for "delayq enqueue --jobs". It only reads.
-- Usage: redis-cli --raw EVAL "$(cat lmstfy.lua)" 1 timer_set NAMESPACE QUEUE
local timer, namespace, queue = KEYS[1], ARGV[1], ARGV[2]
local path = '/' .. namespace .. '/' .. queue
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local lines = {}

-- JSON stays as it is, on one line; other text becomes a JSON string. cjson alone takes more than JSON: numbers such as
-- 01, 0x10 and NaN, and line breaks in strings.
local function json(text)
  local good = pcall(cjson.decode, text)
  local rest = text:gsub('\\.', ''):gsub('"[^"]*"', function(inner)
    good = good and not inner:find('[%z\1-\31]')
    return ''
  end)
  for word in rest:gmatch('[^%s%[%]{}:,]+') do
    local int, decimals, power = word:match('^%-?(%d+)(%.?%d*)([eE]?[+-]?%d*)$')
    local number = int and (int == '0' or int:sub(1, 1) ~= '0') and decimals ~= '.'
      and (power == '' or power:find('^[eE][+-]?%d+$'))
    good = good and (number or word == 'true' or word == 'false' or word == 'null')
  end
  return good and text:gsub('[\r\n]', ' ') or cjson.encode(text)
end

local function add(id, tries, seconds)
  local key = 'j' .. path .. '/' .. id
  local body = redis.call('GET', key)
  -- Without a body the job is done. With no tries left lmstfy moves it to the dead letters.
  if not body or tries == 0 then return end
  local more = seconds and ',"at":"@' .. seconds .. '"' or ''
  -- The key expires with the job. What is left then after the due time is the job's time to live.
  local left = redis.call('PTTL', key)
  if left >= 0 then
    if seconds then left = left - math.max(0, seconds * 1000 - now) end
    if left <= 0 then return end
    more = more .. string.format(',"ttl":"%dms"', left)
  end
  local head = string.format('{"id":%s%s,"deliveries":%d', cjson.encode(id), more, tries)
  lines[#lines + 1] = head .. ',"payload":' .. json(body) .. '}'
end

local entries = redis.call('ZRANGE', timer, 0, -1, 'WITHSCORES')
for i = 1, #entries, 2 do
  local ns, q, tries, id = struct.unpack('Hc0Hc0HHc0', entries[i])
  if ns == namespace and q == queue then add(id, tries, entries[i + 1]) end
end
-- The next one stands at the end of the list.
local ready = redis.call('LRANGE', 'q' .. path, 0, -1)
for i = #ready, 1, -1 do
  local tries, id = struct.unpack('HHc0', ready[i])
  add(id, tries)
end
return lines
