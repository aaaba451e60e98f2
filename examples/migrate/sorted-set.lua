-- For sorted-set.sh: takes members of a sorted set out of it, and prints them as lines for "delayq enqueue --jobs".
-- What is taken stands in a hash beside the set until "drop LINES ID" says that it is enqueued, with the id of its
-- first line: a move that was killed goes on there, with the same ids. The last line is "end LINES LEFT".
local set, unit, act, slice, skip = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local taken = (set:find('{[^}]+}') and set or '{' .. set .. '}') .. ':delayq-move'

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

-- Whether a member is UTF-8 (RFC 3629). Other bytes cannot be a payload.
local function isText(member)
  local rest = member:gsub('[%z\1-\127]+', '\0')
  rest = rest:gsub('[\194-\223][\128-\191]', '\0'):gsub('\224[\160-\191][\128-\191]', '\0')
  rest = rest:gsub('\237[\128-\159][\128-\191]', '\0'):gsub('[\225-\236\238\239][\128-\191][\128-\191]', '\0')
  rest = rest:gsub('\240[\144-\191][\128-\191][\128-\191]', '\0')
  rest = rest:gsub('[\241-\243][\128-\191][\128-\191][\128-\191]', '\0')
  rest = rest:gsub('\244[\128-\143][\128-\191][\128-\191]', '\0')
  return not rest:find('[\128-\255]')
end

-- The due time in ms; nil if the score is none. Numbers from 1e11 on are ms: in seconds they would be after 5138.
local function due(score)
  local time = tonumber(score)
  if unit == 's' and time >= 1e11 or unit == 'ms' and time >= 1e8 and time < 1e11 then return nil end
  local ms = math.max(0, math.ceil(unit == 's' and time * 1000 or time))
  -- Up to the year 9999, as enqueue has it.
  return ms < 253402300800000 and ms or nil
end

if act == 'drop' then
  -- Another move may have dropped this slice, and have taken the next one.
  if redis.call('HLEN', taken) ~= slice or redis.call('HEXISTS', taken, skip) == 0 then
    return redis.error_reply('ERR another move of ' .. set .. ' runs')
  end
  return redis.call('DEL', taken)
end

local lines, left = {}, 0
local function line(id, ms, payload)
  -- The id stays taken for a day after the job is done: a move that goes on then does not make it again.
  lines[#lines + 1] = string.format('{"id":"%s","at":"@%.3f","onceFor":"1d","payload":', id, ms / 1000)
    .. payload .. '}'
end

local before = redis.call('HGETALL', taken)
for i = 1, #before, 2 do
  local ms, member = before[i + 1]:match('^(%d+) (.*)$')
  line(before[i], tonumber(ms), json(member))
end
if #before == 0 then
  local now = redis.call('TIME')
  local first = tonumber(skip)
  local members = redis.call('ZRANGE', set, first, first + slice - 1, 'WITHSCORES')
  for i = 1, #members, 2 do
    local member, ms = members[i], due(members[i + 1])
    local payload = ms and isText(member) and json(member)
    -- A payload has at most 8 MiB.
    if payload and #payload <= 8 * 1024 * 1024 then
      local id = redis.sha1hex(now[1] .. ' ' .. now[2] .. ' ' .. member)
      line(id, ms, payload)
      if act == 'take' then
        redis.call('HSET', taken, id, string.format('%.0f ', ms) .. member)
        redis.call('ZREM', set, member)
      end
    else
      left = left + 1
    end
  end
end
lines[#lines + 1] = 'end ' .. #lines .. ' ' .. left
return lines
