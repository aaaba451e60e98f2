-- Wakes waiting drains if n jobs that have just left `active` made the first place under max-active free. `maxActive`: the
-- setting, if the caller knows it.
local function freed(n, maxActive)
  if n > 0 and maxActive == nil then maxActive = try('HGET', config, 'maxActive') end
  local most = n > 0 and tonumber(maxActive)
  if not most then return end
  local clock = call('TIME')
  local ms = string.format('%.0f', clock[1] * 1000 + math.floor(clock[2] / 1000))
  local live = call('ZCOUNT', active, '(' .. ms, '(inf')
  local due = live < most and live + n >= most and try('ZCOUNT', pending, '-inf', ms)
  -- After the writes nothing may fail, whatever `pending` is.
  if type(due) == 'number' and due > 0 then
    -- As in wake.lua.
    local channel = string.gsub(pending, 'pending$', 'wake')
    -- on a cluster: if type(try('SPUBLISH', channel, ms)) == 'number' then return end
    try('PUBLISH', channel, ms)
  end
end
