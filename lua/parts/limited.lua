-- Takes the tokens of the n jobs that this call took. If due jobs are left that a limit holds back, says so, and when to
-- ask again. For drain-reply.lua.
if most then
  local held = due <= cutoff
  if tokens then tokens = tokens - n end
  if held and (places == n or start == 0) then
    state, soonest = 'full', math.ceil(math.max(now, math.min(back, now + pollMs)))
  elseif held and tokens and tokens < 1 then
    -- Each caller that waits gets a later time than the one before it: when the tokens that it will take are there.
    local wanted = math.max(1, math.min(asked, start, burst / 2, rate * 50))
    ticket = math.min(math.max(ticket, now - tokens / rate) + wanted / rate, now + pollMs)
    ticket = math.max(ticket, now + (1 - tokens) / rate)
    state, soonest = 'limited', math.ceil(ticket)
  else
    held = false
  end
  if tokens and (n > 0 or held or bucketAt > now) then
    call('HSET', stats, 'bucket', string.format('%.9f %d %.0f', tokens, now, ticket))
  end
  traits = traits + 1
end
