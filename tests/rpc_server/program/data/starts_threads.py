"""Starts a thread while it is imported, which would be missing after a fork."""

import threading
import time

seed_candidate = {"prompt": "seed"}

ticks = 0


def tick():
    global ticks
    while True:
        ticks += 1
        time.sleep(0.001)


threading.Thread(target=tick, daemon=True).start()


def run(example, candidate):
    before = ticks
    if "begun" in example:
        open(example["begun"], "w").close()
    while ticks == before:
        time.sleep(0.001)
    time.sleep(example.get("seconds", 0))
    return "the thread is alive"
