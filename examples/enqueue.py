"""Enqueues a job through the documented keys. Needs redis-py, but no delayq on this machine.

Usage: python3 enqueue.py order-close 900 '{"orderId":42}'
"""
import os
import secrets
import sys

import redis

queue, seconds, payload = sys.argv[1:]
client = redis.Redis.from_url(os.environ.get("REDIS_URL", "redis://127.0.0.1:6379"))

now, micros = client.time()  # due by Redis's clock, not by this machine's
due = now * 1000 + micros // 1000 + int(seconds) * 1000
job = secrets.token_hex(8)

client.sadd("delayq:queues", queue)  # lets "delayq inspect" list the queue
with client.pipeline(transaction=True) as both:
    both.hset(f"delayq:{{{queue}}}:payload", job, payload)  # one JSON value on one line
    both.zadd(f"delayq:{{{queue}}}:pending", {job: due})
    both.execute()
print(job)
