-- Removes what is left of a queue without jobs: counters and settings. Not who must still be told of a superseded lease:
-- handlers would be killed for one that they take for lost. They ask, and the last of these fields goes, when they end.
-- Reply  1 when it is gone, 0 when there are jobs, and nothing was done
-- Atomic because a job that comes meanwhile must not lose its payload.
if redis.call('EXISTS', pending, active, dead) > 0 then return { 0 } end
redis.call('UNLINK', payload, meta, stats, config)
return { 1 }
