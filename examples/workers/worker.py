# Closes orders: ORDERS=/srv/orders delayq drain --watch --stay -P 4 order-close -- python3 worker.py
import json, os, sys
from pathlib import Path

orders = Path(os.environ["ORDERS"])
answers = os.fdopen(int(os.environ["DELAYQ_ANSWER_FD"]), "w", buffering=1)
for line in sys.stdin.buffer:
    job = json.loads(line)
    try:
        order = orders / str(int(job["payload"]["orderId"]))
        if not order.exists():
            print("dead", job["ticket"], "no order", order.name, file=answers)
            continue
        if order.read_text().strip() == "open":
            with (orders / "closed").open("a") as closed:
                print(order.name, file=closed)
        print("ok", job["ticket"], file=answers)
    except Exception as error:
        print("retry", job["ticket"], "-", " ".join(str(error).split()), file=answers)
