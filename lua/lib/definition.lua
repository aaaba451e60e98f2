-- Definitions of recurring jobs, in `every`: three lines, LAST, HEADER (JSON), PAYLOAD (docs/internals/recurring.md).

-- LAST, the header, its rev and the payload of a definition; nothing if there is none. The rev of one that cannot be read
-- is '-'.
local function definition(id)
  local text = call('HGET', every, id)
  if not text then return end
  local last, header, body = string.match(text, '^([^\n]*)\n([^\n]*)\n(.*)$')
  return last or '', header or '', string.match(header or '', '^{"rev":"(%w+)"') or '-', body
end
