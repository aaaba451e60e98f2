#!/bin/sh
# Posts webhooks as they fall due. One that fails is retried after 30 s, 1 min and 10 min, and is then dead: see
# "delayq list --dead webhook" and "delayq requeue webhook". Enqueue with: delayq enqueue webhook '{"orderId":42}'
set -eu
delayq config --create webhook tries=4 backoff=30s,1m,10m
exec delayq drain --watch -P 4 --timeout 40s webhook -- post-webhook
