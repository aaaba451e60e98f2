-- Refuses a queue whose layout of keys and records these scripts do not support. Without the field, it is layout 1.
if layout and layout ~= '1' then
  return redis.error_reply('LAYOUT the queue has layout ' .. layout .. ', but this delayq supports only layout 1')
end
