-- Counts n deliveries by lateness. dues[1] … dues[seen] are ascending due times, false for a job that was not
-- delivered. The jobs of one call fall into few buckets, so a binary search finds the end of each.
local kept, sum, from = n == seen and dues or {}, now * n, 1
for i = 1, n < seen and seen or 0 do kept[#kept + 1] = dues[i] or nil end
for i = 1, n do sum = sum - kept[i] end
count('late:sum', math.floor(sum))
while from <= n do
  local name, low, high = bucket(now - kept[from]), from + 1, n + 1
  if name == bucket(now - kept[n]) then low = high end
  while low < high do
    local middle = math.floor((low + high) / 2)
    if bucket(now - kept[middle]) == name then low = middle + 1 else high = middle end
  end
  count(name, low - from)
  from = low
end
