-- Prints the scheduled, retried and pending tasks of an asynq queue as lines for "delayq enqueue --jobs". Only reads.
-- Usage: redis-cli --raw EVAL "$(cat asynq.lua)" 1 'asynq:{QUEUE}' [TYPE]      (TYPE: only tasks of this type)
local queue, kind = KEYS[1], ARGV[1]
local lines = {}

-- Reads a task out of its protocol buffer: type 1, payload 2, retry 5 (how often at most), retried 6 (so far).
local function taskOf(bytes)
  local at, fields = 1, {}
  local function varint()
    local value, factor = 0, 1
    while true do
      local byte = bytes:byte(at)
      at = at + 1
      value = value + byte % 128 * factor
      if byte < 128 then return value end
      factor = factor * 128
    end
  end
  while at <= #bytes do
    local tag = varint()
    local value = varint()
    if tag % 8 == 2 then
      at = at + value
      value = bytes:sub(at - value, at - 1)
    elseif tag % 8 ~= 0 then
      error('not a task of asynq: unknown wire type ' .. tag % 8)
    end
    fields[(tag - tag % 8) / 8] = value
  end
  return fields[1], fields[2] or 'null', (fields[5] or 0) - (fields[6] or 0) + 1
end

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

local function add(id, seconds)
  local message = redis.call('HGET', queue .. ':t:' .. id, 'msg')
  if not message then return end
  local type, payload, tries = taskOf(message)
  if kind and type ~= kind then return end
  local at = seconds and ',"at":"@' .. seconds .. '"' or ''
  local head = string.format('{"id":%s%s,"tries":%d', cjson.encode('asynq:' .. id), at, math.max(1, tries))
  lines[#lines + 1] = head .. ',"payload":' .. json(payload) .. '}'
end

for _, set in ipairs({ ':scheduled', ':retry' }) do
  local ids = redis.call('ZRANGE', queue .. set, 0, -1, 'WITHSCORES')
  for i = 1, #ids, 2 do add(ids[i], ids[i + 1]) end
end
-- The next one stands at the end of the list.
local pending = redis.call('LRANGE', queue .. ':pending', 0, -1)
for i = #pending, 1, -1 do add(pending[i]) end
return lines
