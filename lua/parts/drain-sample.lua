if tonumber(sampled) ~= minute then
  -- Before the drain changes anything. First write: it frees memory, so a full server also accepts the rest.
  call('HDEL', stats, 'drained')
  -- include lib/sample
end
