-- The counter of a delivery that was so late, ms.
local function bucket(late)
  return late <= 5 and 'late:5' or late <= 10 and 'late:10' or late <= 50 and 'late:50' or late <= 100 and 'late:100'
    or late <= 500 and 'late:500' or late <= 1000 and 'late:1000' or late <= 5000 and 'late:5000'
    or late <= 10000 and 'late:10000' or late <= 60000 and 'late:60000' or late <= 600000 and 'late:600000'
    or late <= 3600000 and 'late:3600000' or 'late:inf'
end
