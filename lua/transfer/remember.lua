-- Remembers ids that another partition of the same queue has remembered, where they belong since a growth began.
-- ARGV   for each: until when, ms, id
-- Reply  1
-- Atomic with the check of the layout: once the growth is done, an id that was freed must not be taken again.
-- The first write grows memory on purpose: so a full server rejects the whole call.
-- include lib/prelude
-- include lib/uses
call('ZADD', done, 'GT', unpack(ARGV))
if not (uses and string.find(uses, 'windows', 1, true)) then noteUses() end
return { 1 }
