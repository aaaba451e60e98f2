#!/bin/sh
# incident.sh DIR: sets up the incident of incident.md. Starts its own redis-server in DIR and prints how to reach it.
# To stop that server: redis-cli -s DIR/redis.sock shutdown nosave
set -eu
mkdir -p "$1"
cd "$1"
redis-server --port 0 --unixsocket "$PWD/redis.sock" --dir "$PWD" --save '' --appendonly yes --daemonize yes \
  --maxmemory 512mb --maxmemory-policy allkeys-lru --slowlog-log-slower-than -1 > /dev/null
until redis-cli -s redis.sock ping > /dev/null 2>&1; do sleep 0.1; done
export DELAYQ_REDIS_URL="unix://$PWD/redis.sock"

# The handlers: one records which orders it closed, the other has a bug in its latest release.
cat > close-orders << 'HANDLER'
#!/bin/sh
cat >> closed.jsonl
HANDLER
cat > post-webhook << 'HANDLER'
#!/bin/sh
[ "$(cat)" != '{"orderId":null}' ] || { echo 'no such order: null' >&2 && exit 65; }
[ -e mended ] || { echo 'TypeError: url is undefined' >&2 && exit 65; }
HANDLER
chmod +x close-orders post-webhook

# 100 webhooks that failed because of the bug, and one that no release can post, as its producer wrote no order.
{ seq 100 | sed 's/.*/{"orderId":&}/'; echo '{"orderId":null}'; } | delayq enqueue -q webhook -
delayq drain -q -P 4 --max-failures 1000 webhook -- ./post-webhook 2> /dev/null || [ $? = 1 ]

# An hour without cron: 40,000 orders fell due in that hour, and 3,000 more will, from ten minutes on.
now=$(date +%s)
awk -v now="$now" 'BEGIN {
  for (i = 0; i < 43000; i++) printf "{\"id\":\"order:%d\",\"at\":\"@%d\",\"payload\":{\"orderId\":%d}}\n", i, now - 3600 + i * 0.09 + (i < 40000 ? 0 : 600), i
}' | delayq enqueue -q --jobs order-close -
for queue in order-close webhook; do
  redis-cli -s redis.sock hset "delayq:{$queue}:stats" drained "$((now - 3600))000" > /dev/null
  # Samples from before the incident would have expired by now.
  redis-cli -s redis.sock hkeys "delayq:{$queue}:stats" | grep '^at:\|^sampled' |
    xargs redis-cli -s redis.sock hdel "delayq:{$queue}:stats" > /dev/null
done
redis-cli -s redis.sock hget 'delayq:{webhook}:stats' failures |
  sed -E "s/\"(at|since)\":[0-9]+/\"\\1\":$((now - 3600))000/g" |
  redis-cli -s redis.sock -x hset 'delayq:{webhook}:stats' failures > /dev/null

# A producer was killed between its two commands.
delayq enqueue -q --in 1d remind '{"user":7}'
redis-cli -s redis.sock zadd 'delayq:{remind}:pending' "$((now + 7200))000" user:8 > /dev/null

echo "export DELAYQ_REDIS_URL=$DELAYQ_REDIS_URL"
