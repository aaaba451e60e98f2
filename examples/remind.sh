#!/bin/sh
# remind.sh USER TIME: remind somebody at a time of day where they live; an hour later it would be of no use any more.
set -eu
delayq enqueue --at "$2" --tz Europe/Berlin --ttl 1h remind "{\"user\":$1}"
