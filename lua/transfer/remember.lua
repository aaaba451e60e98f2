-- Remembers ids that another partition of the same queue has remembered, where they belong since a growth began.
-- ARGV   for each: until when, ms, id
-- Reply  1
-- Atomic with the check of the layout: once the growth is done, an id that was freed must not be taken again.
-- The first write grows memory on purpose: so a full server rejects the whole call.
-- include lib/prelude
-- in a partition: call('ZADD', done, 'GT', unpack(ARGV))
return { 1 }
