#!/bin/sh
# Enqueues a job with redis-cli only, through the documented keys.
# Usage: enqueue-redis-cli.sh order-close 900 '{"orderId":42}'     (options for redis-cli in REDISCLI_OPTIONS)
set -eu
queue=$1 seconds=$2 payload=$3
id=$(od -An -N8 -tx1 /dev/urandom | tr -d ' \n')

# A script instead of MULTI and EXEC, so that the payload needs no quoting. The due time is by Redis's clock.
# shellcheck disable=SC2086
redis-cli ${REDISCLI_OPTIONS:-} EVAL "
  local t = redis.call('TIME')
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
  redis.call('ZADD', KEYS[2], t[1] * 1000 + math.floor(t[2] / 1000) + ARGV[2] * 1000, ARGV[1])
  return ARGV[1]" 2 "delayq:{$queue}:payload" "delayq:{$queue}:pending" "$id" "$seconds" "$payload"
# shellcheck disable=SC2086
redis-cli ${REDISCLI_OPTIONS:-} SADD delayq:queues "$queue" >/dev/null # lets "delayq inspect" list the queue
