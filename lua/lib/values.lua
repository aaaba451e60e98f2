-- Reads ids and numbers that other software may have written.

-- Whether handlers can receive an id. Other software may use any bytes, but handlers receive ids in arguments,
-- environment and JSON: not empty, UTF-8, without NUL. As idOf in src/model/id.ts.
local function isId(text)
  -- Nearly all ids return here. Anchored, because that is the fastest way to check each byte.
  if string.find(text, '^[\1-\127]+$') then return true end
  -- Other UTF-8: shortest form only, no surrogates, nothing above U+10FFFF.
  for _, character in ipairs({
    '[\194-\223][\128-\191]', '\224[\160-\191][\128-\191]', '[\225-\236\238\239][\128-\191][\128-\191]',
    '\237[\128-\159][\128-\191]', '\240[\144-\191][\128-\191][\128-\191]',
    '[\241-\243][\128-\191][\128-\191][\128-\191]', '\244[\128-\143][\128-\191][\128-\191]',
  }) do
    text = string.gsub(text, character, ' ')
  end
  return string.find(text, '^[\1-\127]+$') ~= nil
end

-- A count or a time from a record or the config; `otherwise` if it is invalid.
local function counted(value, otherwise)
  local n = tonumber(value)
  return n and n >= 0 and n <= 1e15 and math.floor(n) or otherwise
end

-- The default lease of the queue, ms.
local function queueLease(text)
  return math.max(counted(text, DEFAULT_LEASE_MS), 1)
end
