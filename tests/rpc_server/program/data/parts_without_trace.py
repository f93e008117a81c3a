"""Two components, reported by the public functions, in the thread of the example and in one of the program's own."""

import threading

from evolverpc import ParseFailure, step, tool

seed_candidate = {"planner": "Plan.", "solver": "Solve."}


def run(example, candidate):
    plan = step("planner", lambda question: f"plan for {question}", question=example["question"])
    with step("solver", plan=plan) as solving:
        found = tool("search", lambda query: ["found"], query=plan)
        solving.usage = {"calls": 1}
        solving.outputs = found
    try:
        with step("solver", attempt=2), step("planner", attempt=3):
            raise ParseFailure("no answer", "{}")
    except ParseFailure:
        pass
    worker = threading.Thread(target=step, args=("planner", lambda: "of a thread"))
    worker.start()
    worker.join()
    return found


def score(example, output, trajectory):
    return len(trajectory["steps"])
