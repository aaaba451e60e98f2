#!/bin/sh
# Writes metrics for node_exporter's textfile collector. Run it from a crontab:
#
#   * * * * *  DELAYQ_REDIS_URL=redis://127.0.0.1:6379 /usr/local/bin/metrics.sh
#
# If Redis is unreachable, the old file stays, and an alert fires because of its age: see alerts.yml.
PATH=/usr/local/bin:$PATH
exec delayq metrics --out "${1:-/var/lib/prometheus/node-exporter}/delayq.prom"
