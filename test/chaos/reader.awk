# A handler of lines in awk: see reader.js. Fields are split at quotes: ids and receipts contain none.
BEGIN { FS = "\"" }
# The last line may lack its end, as when drain is killed: it is no job. After such a line mawk -W interactive (1.3.4)
# repeats the end of an older line of over 4 KiB, which is still in its buffer.
cut { next }
!/("payload":"[^"]*"|})}$/ { cut = 1; next }
function now(  ms) { "date +%s%3N" | getline ms; close("date +%s%3N"); return ms }
{
  start = now()
  attempt = $15; due = $17
  gsub(/[:,]/, "", attempt); gsub(/[:,]/, "", due)
  if (ENVIRON["CHAOS_PAUSE"]) system("sleep " ENVIRON["CHAOS_PAUSE"])
  # Written by a shell: awk may write a line in pieces, and lines of others could come between.
  line = $8 " " attempt " " due " " start " " now() " " $12 " " ENVIRON["CHAOS_RUN"]
  system("printf '%s\\n' '" line "' >> \"$CHAOS_LOG\"")
}
