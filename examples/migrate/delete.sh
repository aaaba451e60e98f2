#!/bin/sh
# Deletes copied jobs from their old queue: those of a file, if a queue of delayq has every one of them.
#
# Usage: delete.sh [--dry-run] QUEUE FILE SYSTEM KEY
#
# QUEUE is where the lines of FILE were enqueued to, and paused. SYSTEM and KEY say where the jobs come from:
#   asynq 'asynq:{NAME}'   bullmq bull:NAME   delayqueue dp:NAME   lmstfy NAMESPACE/NAME   sidekiq queue:NAME
#
# If an id is missing in QUEUE, nothing is deleted (exit 1). If the old queue has none of the jobs (any more), it exits
# with 3. It can be killed and repeated at any time. REDIS_CLI: how to call redis-cli for the old queue.
set -eu

act=delete
if [ "${1-}" = --dry-run ]; then
  act=count
  shift
fi
case $#,${3-} in
  4,asynq | 4,bullmq | [45],delayqueue | 4,lmstfy | 4,sidekiq) ;;
  *)
    echo 'usage: delete.sh [--dry-run] QUEUE FILE SYSTEM KEY' >&2
    exit 64
    ;;
esac
queue=$1 file=$2 system=$3 found=0
shift 3
here=$(dirname "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
export LC_ALL=C

jq -r 'if .id | type == "string" and . != "" then .id else error("a line without an id") end' "$file" > "$work/lines"
delayq list --ids "$queue" > "$work/listed"
# In the order of the file: so delete.lua finds each one near the end of its list.
awk '!seen[$0]++' "$work/lines" > "$work/ids"
sort "$work/ids" > "$work/sorted"
sort "$work/listed" > "$work/there"
comm -23 "$work/sorted" "$work/there" > "$work/missing"
jobs=$(($(wc -l < "$work/ids")))
missing=$(($(wc -l < "$work/missing")))
if [ "$jobs" -eq 0 ]; then
  echo "$file has no jobs: nothing was deleted" >&2
  exit 1
fi
if [ "$missing" -gt 0 ]; then
  echo "$missing of $jobs jobs are not in $queue, such as $(head -n 1 "$work/missing"): nothing was deleted" >&2
  exit 1
fi

# A few at a time, so that Redis is never held for long.
split -a 4 -l 5000 "$work/ids" "$work/part."
for part in "$work"/part.*; do
  # shellcheck disable=SC2086
  n=$(${REDIS_CLI:-redis-cli} --raw -x EVAL "$(cat "$here/delete.lua")" $# "$@" "$system" $act < "$part")
  case $n in
    '' | *[!0-9]*)
      printf 'Redis: %s\n' "$n" >&2
      exit 1
      ;;
  esac
  found=$((found + n))
done

verb='deleted from'
[ $act = delete ] || verb='would be deleted from'
echo "$found of $jobs jobs $verb $1"
if [ "$found" -eq 0 ]; then
  echo "$1 has none of them: they were deleted before, or SYSTEM or KEY is wrong" >&2
  exit 3
fi
