#!/bin/sh
# remind.sh USER TIME: reminds a user at a local time of day. After an hour the reminder is useless: it expires.
set -eu
delayq enqueue --at "$2" --tz Europe/Berlin --ttl 1h remind "{\"user\":$1}"
