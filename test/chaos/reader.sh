#!/bin/bash
# A handler of one line, for xargs: see reader.js.
now() { local t=$EPOCHREALTIME; t=${t/[.,]/}; ms=${t%???}; }
now; start=$ms
[[ $1 =~ \"id\":\"([^\"]*)\",\"receipt\":\"([^\"]*)\",\"attempt\":([0-9]*),\"due\":([0-9]*) ]] || { printf 'xargs: no job: %q\n' "$1" >&2; exit 1; }
[ -z "$CHAOS_PAUSE" ] || sleep "$CHAOS_PAUSE"
now
printf '%s\n' "${BASH_REMATCH[1]} ${BASH_REMATCH[3]} ${BASH_REMATCH[4]} $start $ms ${BASH_REMATCH[2]} $CHAOS_RUN" >> "$CHAOS_LOG"
