-- A limit counts the jobs of one partition, so a queue with several cannot have one.
for i = 1, known ~= '2 0/1' and #ARGV or 0, 2 do
  if (ARGV[i] == 'rate' or ARGV[i] == 'burst' or ARGV[i] == 'maxActive') and ARGV[i + 1] ~= '' then
    return redis.error_reply('CONFLICT a queue with partitions cannot have limits (rate, burst, max-active)')
  end
end
