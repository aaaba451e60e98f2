-- Whether a growth of the queue is moving the job that has this lease: only names of partitions have a slash.
local function isTransferred(held)
  return string.find(held or '', ' move:%S+/%d+ ') ~= nil
end
