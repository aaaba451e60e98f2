# A handler of lines in Python: see reader.js.
import json, os, sys, time

log = os.open(os.environ["CHAOS_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
now = lambda: int(time.time() * 1000)
for line in sys.stdin:
    start = now()
    job = json.loads(line)
    time.sleep(float(os.environ.get("CHAOS_PAUSE", 0)))
    words = [job["id"], job["attempt"], job["due"], start, now(), job["receipt"], os.environ["CHAOS_RUN"]]
    os.write(log, (" ".join(map(str, words)) + "\n").encode())
