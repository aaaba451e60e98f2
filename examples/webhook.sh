#!/bin/sh
# Posts webhooks as they fall due. A failed one is tried again after 30 s, 1 min and 10 min. Then it is dead, and waits
# for "delayq list --dead webhook" and "delayq requeue webhook". Enqueue with: delayq enqueue webhook '{"orderId":42}'
set -eu
delayq config webhook tries=4 backoff=30s,1m,10m
exec delayq drain --watch -P 4 --timeout 40s webhook -- post-webhook
