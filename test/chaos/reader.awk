# A handler of lines in awk: see reader.js. Fields lie between quotes, as ids and receipts have none in them.
BEGIN { FS = "\"" }
function now(  ms) { "date +%s%3N" | getline ms; close("date +%s%3N"); return ms }
{
  start = now()
  attempt = $15; due = $17
  gsub(/[:,]/, "", attempt); gsub(/[:,]/, "", due)
  if (ENVIRON["CHAOS_PAUSE"]) system("sleep " ENVIRON["CHAOS_PAUSE"])
  # By a shell: awk may write a line in pieces, between which others write.
  line = $8 " " attempt " " due " " start " " now() " " $12 " " ENVIRON["CHAOS_RUN"]
  system("printf '%s\\n' '" line "' >> \"$CHAOS_LOG\"")
}
