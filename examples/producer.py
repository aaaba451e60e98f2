"""Enqueues, replaces and cancels jobs through the documented keys. Needs redis-py, but no delayq on this machine.

Usage: python3 producer.py enqueue order-close 900 '{"orderId":42}'             prints the id of the new job
       python3 producer.py keep    order-close order:42 900 '{"orderId":42}'    unless the queue has the id
       python3 producer.py replace order-close order:42 900 '{"orderId":42}'    if it is pending, or not there
       python3 producer.py cancel  order-close order:42                         if it is pending
DELAYQ_REDIS_URL  where Redis is, in delayq's own forms, without parameters, and hosts by name or IPv4:
                  redis://[[user]:password@]host[:port][/db], unix://[login@]/path, redis+cluster://[login@]h1:port,h2…,
                  redis+sentinel://[login@]s1[:port],s2…/NAME[/db]; rediss in place of redis means TLS
DELAYQ_TLS_CA     with TLS: path of the CA certificates to trust, if they are not those of the system
"""
import os
import pathlib
import re
import secrets
import sys
import urllib.parse
import zlib

import redis
from redis.cluster import ClusterNode, RedisCluster
from redis.sentinel import Sentinel

USAGE = "usage: enqueue QUEUE SECONDS PAYLOAD, keep|replace QUEUE ID SECONDS PAYLOAD, cancel QUEUE ID"
SCRIPT = pathlib.Path(__file__).with_name("producer.lua").read_text()


def partition_of(job, count):
    """Linear hashing: the index of the partition to which an id belongs."""
    if re.search(r"@\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\Z", job):
        return 0  # a job of a recurring one
    power = 1
    while power < count:
        power *= 2
    crc = zlib.crc32(job.encode())
    return crc % power if crc % power < count else crc % (power // 2)


def call(client, tag, layout, *words):
    """Runs producer.lua in a partition."""
    names = ("config", "payload", "pending", "active", "dead", "meta", "done")
    keys = [f"delayq:{{{tag}}}:{name}" for name in names]
    return client.eval(SCRIPT, len(keys), *keys, layout, *words)


def act(client, what, queue, job, seconds=0, payload=""):
    """Does `enqueue`, `keep`, `replace` or `cancel`. Returns what producer.lua says."""
    words = (what, job, int(seconds) * 1000, payload)
    layout, tags = "1 0/1", [queue]
    # If the queue has partitions, the first call learns the layout, and the second one goes to that of the id.
    for _ in range(3):
        i = partition_of(job, len(tags))
        answer = call(client, tags[i], re.sub(r"^1 \d+/", f"1 {i}/", layout), *words)
        if isinstance(answer, bytes):
            return answer.decode()
        layout, more = (part.decode() for part in answer)
        if not re.fullmatch(r"1 \d+/\d+", layout):
            break
        tags = [queue, *more.split()]
    if what == "enqueue" and " from " in layout:
        return call(client, queue, "", *words).decode()  # a new id may be in any partition
    raise RuntimeError(f"{queue} is getting more partitions, or is of a newer delayq: try later, or use delayq")


def connect(url):
    form = r"(redis|rediss|unix)(?:\+(sentinel|cluster))?://(?:(?:([^:@]*):)?(.*)@)?([^/?]*)/?([^?]*)"
    parts = re.fullmatch(form, url)
    if not parts:
        raise ValueError("DELAYQ_REDIS_URL has a form that is unknown here")
    scheme, kind, user, password, hosts, rest = parts.groups()
    tls = {}
    if scheme == "rediss":
        tls = {"ssl": True, "ssl_check_hostname": True, "ssl_ca_certs": os.environ.get("DELAYQ_TLS_CA")}
    how = {name: urllib.parse.unquote(text) for name, text in (("username", user), ("password", password)) if text}
    if scheme == "unix":
        return redis.Redis(unix_socket_path=f"/{rest}", **how)
    places = []
    for place in hosts.split(","):
        host, _, port = place.partition(":")
        places.append((host, int(port or (26379 if kind == "sentinel" else 6379))))
    if kind == "cluster":
        return RedisCluster(startup_nodes=[ClusterNode(*place) for place in places], **how, **tls)
    if kind == "sentinel":
        name, _, db = rest.partition("/")
        return Sentinel(places, sentinel_kwargs=tls).master_for(name, db=int(db or 0), **how, **tls)
    return redis.Redis(*places[0], db=int(rest or 0), **how, **tls)


def main(what="", queue="", *words):
    count = {"enqueue": 2, "keep": 3, "replace": 3, "cancel": 1}.get(what)
    if len(words) != count or (what != "cancel" and not words[-2].isdecimal()):
        print(USAGE, file=sys.stderr)
        sys.exit(64)
    client = connect(os.environ.get("DELAYQ_REDIS_URL") or "redis://127.0.0.1")
    if what == "enqueue":
        words = (secrets.token_hex(8), *words)
    answer = act(client, what, queue, *words)
    if answer == "created":
        client.sadd("delayq:queues", queue)  # lets "delayq inspect" list the queue
    print(words[0] if what == "enqueue" else answer)


main(*sys.argv[1:])
