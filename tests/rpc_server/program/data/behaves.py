"""Does what its example names, bad things included."""

import ctypes
import os
import signal
import sys
import time

seed_candidate = {"prompt": "seed"}


class Opaque:
    pass


class Hostile(dict):
    def items(self):
        raise KeyError("items")


def run(example, candidate, trace, usage):
    trace.append({"prompt": candidate["prompt"]})
    usage["calls"] = 1
    if "begun" in example:
        with open(example["begun"], "a") as file:
            file.write("x")
    return globals()["do_" + example.get("do", "nothing")](example, candidate)


def score(example, output):
    return eval(example["score"]) if "score" in example else 1.0


def do_nothing(example, candidate):
    return example.get("output")


def do_pid(example, candidate):
    return os.getpid()


def do_environment(example, candidate):
    return {name: os.environ.get(name) for name in example["names"]}


def do_where(example, candidate):
    return {"cwd": os.getcwd(), "path": sys.path[0]}


def do_python(example, candidate):
    return eval(example["python"])


def do_raise(example, candidate):
    raise eval(example["error"])


def do_chain(example, candidate):
    try:
        raise KeyError("inner")
    except KeyError as error:
        raise ValueError("outer") from error


def do_exit(example, candidate):
    os._exit(example.get("status", 3))


def do_kill(example, candidate):
    os.kill(os.getpid(), signal.SIGKILL)


def do_segfault(example, candidate):
    print("about to crash", flush=True)
    ctypes.string_at(0)


def do_recurse(example, candidate):
    return do_recurse(example, candidate)


def do_sleep(example, candidate):
    time.sleep(example["seconds"])
    return "slept"


def do_write_pid_and_sleep(example, candidate):
    with open(example["file"], "a") as file:
        file.write("%d\n" % os.getpid())
    time.sleep(example["seconds"])
    return "slept"


def do_spin_in_c(example, candidate):
    return sum(range(10**11))


def do_stubborn(example, candidate):
    while True:
        try:
            time.sleep(60)
        except BaseException:
            pass


def do_swallow_once(example, candidate):
    try:
        time.sleep(60)
    except BaseException:
        return "swallowed"


def do_fork(example, candidate):
    """The child comes back from `run` like the parent."""
    return "child" if os.fork() == 0 else "parent"


def do_fork_and_raise(example, candidate):
    if os.fork() == 0:
        raise RuntimeError("in the child")
    return "parent"


def do_leave_child(example, candidate):
    pid = os.fork()
    if pid == 0:
        time.sleep(600)
        os._exit(0)
    return pid
