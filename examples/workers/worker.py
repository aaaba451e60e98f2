# Closes orders: ORDERS=/srv/orders delayq drain --watch --stay -P 4 order-close -- python3 worker.py
import json, os, sys
from pathlib import Path

orders = Path(os.environ["ORDERS"])
answers = os.fdopen(int(os.environ["DELAYQ_ANSWER_FD"]), "w", buffering=1)


def close(job):
    payload = job.get("payload")
    order_id = payload.get("orderId") if isinstance(payload, dict) else None
    if type(order_id) is not int:  # int() would make order 1 of true
        return "dead", "no order id"
    order = orders / str(order_id)
    if not order.exists():
        return "dead", "no order", order_id
    if order.read_text().strip() == "open":
        with (orders / "closed").open("a") as closed:
            print(order_id, file=closed)
    return ("ok",)


for line in sys.stdin.buffer:
    job = json.loads(line)
    try:
        verb, *reason = close(job)
    except Exception as error:
        verb, *reason = "retry", "-", " ".join(str(error).split())
    print(verb, job["ticket"], *reason, file=answers)
