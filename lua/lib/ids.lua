-- Stands before drain.lua, requeue.lua, audit.lua and mend.lua: which ids can be handed out. Other software makes ids of any
-- bytes, but programs are given arguments, environment and JSON as UTF-8 without NUL, and nothing is no name. idOf in src/ids.ts judges alike.
local function isId(text)
  -- So nearly all end here; anchored, as that is the fastest way to look at each byte.
  if string.find(text, '^[\1-\127]+$') then return true end
  -- Whole characters beyond ASCII: in their shortest form, no halves of surrogate pairs, nothing above U+10FFFF.
  for _, character in ipairs({
    '[\194-\223][\128-\191]', '\224[\160-\191][\128-\191]', '[\225-\236\238\239][\128-\191][\128-\191]',
    '\237[\128-\159][\128-\191]', '\240[\144-\191][\128-\191][\128-\191]',
    '[\241-\243][\128-\191][\128-\191][\128-\191]', '\244[\128-\143][\128-\191][\128-\191]',
  }) do
    text = string.gsub(text, character, ' ')
  end
  return string.find(text, '^[\1-\127]+$') ~= nil
end
