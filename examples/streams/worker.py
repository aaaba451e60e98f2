# A consumer of the stream into which "delayq drain --watch order-close --to-stream" hands jobs. Needs redis-py.
import json, os, socket, sys
import redis

host, port = os.environ.get("REDIS", "127.0.0.1:6379").split(":")
r = redis.Redis(host, int(port), decode_responses=True)
stream, group = os.environ.get("STREAM", "delayq:{order-close}:stream"), "orders"
me = f"{socket.gethostname()}:{os.getpid()}"
idle = int(os.environ.get("IDLE_MS", 60000))
try:
    r.xgroup_create(stream, group, id="0", mkstream=True)  # from the first entry
except redis.ResponseError as error:
    if "BUSYGROUP" not in str(error):
        raise


def handle(job):
    order = json.loads(job["payload"])
    with open(os.environ["ORDERS"] + "/closed", "a") as closed:
        print(order["orderId"], file=closed)


while True:
    # What a consumer has had for a minute without an ack: it is dead, or has failed.
    claimed = r.xautoclaim(stream, group, me, idle, count=10)
    entries = claimed[1] if claimed and isinstance(claimed[0], str) else claimed  # the latter before redis-py 4.4
    if not entries:
        read = r.xreadgroup(group, me, {stream: ">"}, count=10, block=1000)
        entries = read[0][1] if read else []
    for id, job in entries:
        try:
            handle(job)
            r.xack(stream, group, id)
        except Exception as error:
            print(job["id"], error, file=sys.stderr)  # it comes again, through XAUTOCLAIM
