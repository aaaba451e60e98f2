-- Ends claims of jobs of other software.
-- KEYS   1 the sorted set, 2 the claims: see claim.lua
-- ARGV   1 owner, then for each job: id, d (drop its claim) or b (put it back, unless its producer has already)
-- Reply  a letter for each job: h done, l another run has taken over
-- Atomic because a job must be claimed or in the set, and only the owner of a claim may end it.
local set, claims, letters = KEYS[1], KEYS[2], {}
-- A permission that is missing is told before anything is removed. A full server takes what is put back after that.
local told = redis.pcall('ZADD', set, 'XX', '0', '')
if type(told) == 'table' and told.err and not string.find(told.err, '^OOM') then return told end
for i = 2, #ARGV, 2 do
  local id = ARGV[i]
  local owner, score = string.match(redis.call('HGET', claims, id) or '', '^(%S+) %S+ (%S+)')
  letters[#letters + 1] = owner == ARGV[1] and 'h' or 'l'
  if owner == ARGV[1] then
    redis.call('HDEL', claims, id)
    if ARGV[i + 1] == 'b' then redis.call('ZADD', set, 'NX', score, id) end
  end
end
return table.concat(letters)
