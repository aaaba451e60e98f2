# A handler of lines in awk: see reader.js. Fields are split at quotes: ids and receipts contain none.
BEGIN { FS = "\"" }
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
