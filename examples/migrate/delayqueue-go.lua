-- Prints the messages of a queue of the Go library delayqueue as lines for "delayq enqueue --jobs". It only reads.
-- Usage: redis-cli --raw EVAL "$(cat delayqueue-go.lua)" 1 dp:QUEUE [count]    (count: only how many there are)
-- With UseHashTagKey(): 1 '{dp:QUEUE}'. With UseCustomPrefix("shop"): 2 shop:QUEUE dp:QUEUE, where its payloads are.
local queue, messages, count = KEYS[1], KEYS[2] or KEYS[1], ARGV[1] == 'count'
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local lines, seen, expired, spent = {}, {}, 0, 0

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

-- "tries" is how often the message may still be handed out; "seconds" when, at the earliest.
local function add(id, tries, seconds)
  -- A message that missed its deadline, and then failed, is in two places.
  if seen[id] then return end
  seen[id] = true
  local key = messages .. ':msg:' .. id
  local payload = redis.call('GET', key)
  -- The key expires with the message. What is left then after the due time is its time to live.
  local left = redis.call('PTTL', key)
  if left >= 0 and seconds then left = left - math.max(0, seconds * 1000 - now) end
  if not payload or left == 0 or left < -1 then
    expired = expired + 1
  elseif tries < 1 then
    spent = spent + 1
  else
    local more = seconds and ',"at":"@' .. seconds .. '"' or ''
    if left > 0 then more = more .. string.format(',"ttl":"%dms"', left) end
    local head = string.format('{"id":%s%s,"tries":%d', cjson.encode('delayqueue:' .. id), more, tries)
    lines[#lines + 1] = head .. ',"payload":' .. json(payload) .. '}'
  end
end

local function retries(id) return tonumber(redis.call('HGET', queue .. ':retry:cnt', id) or 0) end

local pending = redis.call('ZRANGE', queue .. ':pending', 0, -1, 'WITHSCORES')
for i = 1, #pending, 2 do add(pending[i], retries(pending[i]) + 1, pending[i + 1]) end
for _, list in ipairs({ ':ready', ':retry' }) do
  -- The next one stands at the end of the list. The retry that comes is already taken off its count.
  local ids = redis.call('LRANGE', queue .. list, 0, -1)
  for i = #ids, 1, -1 do add(ids[i], retries(ids[i]) + 1) end
end
-- Handed out: by a worker that died, or whose callback failed. If no retry is left, the library deletes the message.
local unack = redis.call('ZRANGE', queue .. ':unack', 0, -1, 'WITHSCORES')
for i = 1, #unack, 2 do add(unack[i], retries(unack[i]), unack[i + 1]) end
if count then return { #lines .. ' to copy', expired .. ' expired', spent .. ' without a retry left' } end
return lines
