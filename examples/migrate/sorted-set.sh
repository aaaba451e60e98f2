#!/bin/sh
# Moves the members of a sorted set into a queue: each member is a payload, its score the due time.
#
# Usage: sorted-set.sh [--dry-run] KEY s|ms QUEUE
#
# Producers may go on writing. It can be killed and repeated at any time: nothing is lost or enqueued twice. What is no
# text, is over 8 MiB, or has no valid time, stays in the set (exit 1). Of two moves of one set at once, one ends with an
# error. REDIS_CLI: how to call redis-cli.
set -eu

act=take
if [ "${1-}" = --dry-run ]; then
  act=look
  shift
fi
case $#,${2-} in
  3,s | 3,ms) ;;
  *)
    echo 'usage: sorted-set.sh [--dry-run] KEY s|ms QUEUE' >&2
    exit 64
    ;;
esac
key=$1 unit=$2 queue=$3 slice=5000 moved=0 left=0 passed=0
here=$(dirname "$0")
lines=$(mktemp)
jobs=$(mktemp)
trap 'rm -f "$lines" "$jobs"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
script() {
  # shellcheck disable=SC2086
  ${REDIS_CLI:-redis-cli} --raw EVAL "$(cat "$here/sorted-set.lua")" 1 "$key" "$unit" "$@"
}

while :; do
  # A look leaves the members where they are, so it goes on behind them.
  skip=$passed
  [ $act = take ] || skip=$((moved + passed))
  script $act $slice $skip > "$lines"
  # redis-cli also exits 0 after an error.
  end=$(tail -n 1 "$lines")
  case $end in
    end\ *) ;;
    *)
      printf 'Redis: %s\n' "$(head -n 1 "$lines")" >&2
      exit 1
      ;;
  esac
  set -- $end
  [ "$(($2 + $3))" -gt 0 ] || break
  if [ $act = take ] && [ "$2" -gt 0 ]; then
    # Not in a pipe, where nobody would see that sed has failed.
    sed '$d' "$lines" > "$jobs"
    delayq enqueue --jobs --quiet --fail-if-empty "$queue" - < "$jobs"
    dropped=$(script drop "$2" "$(sed -n '1s/^{"id":"\([0-9a-f]*\)".*/\1/p' "$jobs")")
    if [ "$dropped" != 1 ]; then
      printf 'Redis: %s\n' "$dropped" >&2
      exit 1
    fi
  fi
  moved=$((moved + $2)) passed=$((passed + $3))
done

left=$passed
if [ $act = take ]; then
  # While producers write, some were passed more than once.
  # shellcheck disable=SC2086
  left=$(${REDIS_CLI:-redis-cli} --raw ZCARD "$key")
fi
[ $((moved + left)) -gt 0 ] || echo "there is no key $key: it was moved before, or this is not its name" >&2

moves='moved'
[ $act = take ] || moves='would be moved'
echo "$moved $moves to $queue, $left left in $key"
[ "$left" -eq 0 ]
