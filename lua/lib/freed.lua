-- Wakes waiting drains if n jobs that have just left `active` made the first place under max-active free.
local function freed(n)
  local most = n > 0 and tonumber(try('HGET', config, 'maxActive'))
  if not most then return end
  local clock = call('TIME')
  local ms = string.format('%.0f', clock[1] * 1000 + math.floor(clock[2] / 1000))
  local live = call('ZCOUNT', active, '(' .. ms, '(inf')
  if live < most and live + n >= most and call('ZCOUNT', pending, '-inf', ms) > 0 then
    -- As in wake.lua.
    local channel = string.gsub(pending, 'pending$', 'wake')
    -- on a cluster: if type(try('SPUBLISH', channel, ms)) == 'number' then return end
    try('PUBLISH', channel, ms)
  end
end
