#!/bin/sh
# remind.sh USER TIME: remind somebody at a time of day where they live. After an hour the reminder is useless and is dropped.
set -eu
delayq enqueue --at "$2" --tz Europe/Berlin --ttl 1h remind "{\"user\":$1}"
