-- Takes a part of what is left of a limit in its window, or gives it back.
-- KEYS   1 the hash (what is limited → how much is used, when its window ends)
-- ARGV   1 the field, 2 how much to take at most; negative: to give back, 3 the limit, 4 how long a window lasts, ms,
--        5 to give back: the end of the window that it was taken from, ms
-- Reply  how much was taken, when the window ends, ms, and in how many ms; all 0 if the window of ARGV[5] is over
-- Atomic because a window might end between two calls. It begins with its first request. By Redis's clock, because all
-- servers share it.
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local used, till = string.match(redis.call('HGET', KEYS[1], ARGV[1]) or '', '^(%d+) (%d+)$')
used, till = tonumber(used) or 0, tonumber(till) or 0
local want, limit, window = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
if want < 0 then
  if string.format('%.0f', till) ~= ARGV[5] then return { 0, 0, 0 } end
  used = math.max(0, used + want)
else
  -- After a step of the clock back, a window might last for years.
  if till <= now or till > now + window then used, till = 0, now + window end
  want = math.max(0, math.min(want, limit - used))
  used = used + want
end
redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f %.0f', used, till))
return { want, string.format('%.0f', till), till - now }
