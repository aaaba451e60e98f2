#!/usr/bin/env python3
"""Does the jobs that `delayq drain Q --to-stream` moves into a stream. Needs redis-py.

Usage: python3 worker.py 'delayq:{order-close}:stream' GROUP NAME   NAME: another one for each worker of the group
REDIS_URL  where Redis is (default: redis://127.0.0.1)
IDLE_MS    longer than a job takes: after this time, others take over what a dead worker had (default: 60000)
"""
import os
import sys

import redis

stream, group, name = sys.argv[1:]
idle_ms = int(os.environ.get("IDLE_MS", 60000))
client = redis.Redis.from_url(os.environ.get("REDIS_URL", "redis://127.0.0.1"))


def work(job):
    """A job may come twice, so this must be harmless then. If it throws, the job comes again after IDLE_MS."""
    print("closed", job[b"payload"].decode(), flush=True)


try:
    client.xgroup_create(stream, group, id="0", mkstream=True)
except redis.ResponseError as error:
    if "BUSYGROUP" not in str(error):  # another worker has made it
        raise
while True:
    entries = client.xautoclaim(stream, group, name, idle_ms, count=10)[1]
    for _, new in client.xreadgroup(group, name, {stream: ">"}, count=10, block=5000) if not entries else []:
        entries = new
    for entry, job in entries:
        try:
            work(job)
            client.xack(stream, group, entry)
        except Exception as error:
            print(f"{job[b'id'].decode()} failed: {error}", file=sys.stderr)
