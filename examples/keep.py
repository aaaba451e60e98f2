"""Enqueues a job under an id of its own, unless the queue has it: also in a queue with partitions.

Needs redis-py, but no delayq on this machine.
Usage: python3 keep.py shop order:42 900 '{"orderId":42}'
"""
import os
import re
import sys
import zlib

import redis

# A MULTI could not look first. Nothing is written if the queue got more partitions in between.
KEEP = """
if (redis.call('HGET', KEYS[1], 'layout') or '1') ~= ARGV[1] then return 'layout' end
if redis.call('HEXISTS', KEYS[2], ARGV[2]) == 1 then return 'kept' end
local now = redis.call('TIME')
redis.call('HSET', KEYS[2], ARGV[2], ARGV[4])
redis.call('ZADD', KEYS[3], now[1] * 1000 + math.floor(now[2] / 1000) + ARGV[3] * 1000, ARGV[2])
return 'created'
"""


def partition_of(job, count):
    """Linear hashing: the index of the partition to which an id belongs."""
    if re.search(r"@\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\Z", job):
        return 0  # a job of a recurring one
    power = 1
    while power < count:
        power *= 2
    crc = zlib.crc32(job.encode())
    return crc % power if crc % power < count else crc % (power // 2)


def keep(client, queue, job, seconds, payload):
    layout, tags = client.hmget(f"delayq:{{{queue}}}:config", "layout", "partitions")
    layout = (layout or b"1").decode()
    if " from " in layout:
        return "growing"  # where the job may be is known when that is done
    tags = [queue] + (tags or b"").decode().split()
    i = partition_of(job, len(tags))
    mine = re.sub(r"^2 0/", f"2 {i}/", layout)
    keys = [f"delayq:{{{tags[i]}}}:{name}" for name in ("config", "payload", "pending")]
    return client.eval(KEEP, 3, *keys, mine, job, seconds, payload).decode()


def main():
    queue, job, seconds, payload = sys.argv[1:]
    client = redis.Redis.from_url(os.environ.get("REDIS_URL", "redis://127.0.0.1:6379"))
    client.sadd("delayq:queues", queue)  # lets "delayq inspect" list the queue
    answer = keep(client, queue, job, seconds, payload)
    if answer in ("layout", "growing"):
        sys.exit(f"{queue} is getting more partitions: try again later, or use delayq enqueue")
    print(answer)


main()
