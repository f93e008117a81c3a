"""Writes to stdout, stderr, logging and warnings as each row specifies, in threads and subprocesses too."""

import logging
import os
import subprocess
import sys
import threading
import time
import warnings

seed_candidate = {"prompt": "p"}
logger = logging.getLogger("of the program")
handler = logging.StreamHandler()  # keeps its stream from now on
logger.addHandler(handler)
rows = threading.Barrier(2)


def run(example, candidate):
    if example.get("meet"):
        rows.wait(10)
    for word in example.get("print", ()):
        print(word)
        time.sleep(0.01)
    if "log" in example:
        logger.warning(example["log"])
        warnings.warn(example["log"] + " again", stacklevel=1)
        sys.stderr.write("without end")
        sys.stdout.buffer.write(b" bytes\n")
    if "thread" in example:
        thread = threading.Thread(target=print, args=(example["thread"],))
        thread.start()
        thread.join()
    if "subprocess" in example:
        subprocess.run(["echo", example["subprocess"]], check=True)
    if "fork" in example:
        child = os.fork()
        if child == 0:
            print(example["fork"])
            os._exit(0)
        os.waitpid(child, 0)
    if "flood" in example:
        print("first")
        for number in range(example["flood"]):
            print(f"{number:09d}")
        print("last")
    if example.get("meet"):
        rows.wait(10)
    if "sleep" in example:
        time.sleep(example["sleep"])
    if "die" in example:
        os._exit(3)
    if "raise" in example:
        raise ValueError(example["raise"])
    return "done"


def score(example, output):
    return 1.0
