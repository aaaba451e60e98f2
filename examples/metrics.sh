#!/bin/sh
# Writes what node_exporter's textfile collector reads, for a line in a crontab:
#
#   * * * * *  DELAYQ_REDIS_URL=redis://127.0.0.1:6379 /usr/local/bin/metrics.sh
#
# When Redis cannot be reached, the old file stays. alerts.yml has a rule for its age.
PATH=/usr/local/bin:$PATH
exec delayq metrics --out "${1:-/var/lib/prometheus/node-exporter}/delayq.prom"
