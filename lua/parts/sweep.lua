-- Removes some remembered ids whose windows have closed.
if remembered > 0 then
  -- include lib/done
  sweep(100)
end
