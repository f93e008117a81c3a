"""Three components; each row names what shall happen in their steps."""

import threading

seed_candidate = {"planner": "Plan.", "solver": "Solve.", "checker": "Check."}


def run(example, candidate, trace):
    wanted = example.get("do")
    if wanted == "misspelt":
        with trace.step("planer", question="q") as step:
            step.outputs = "plan"
        return "plan"
    if wanted == "unfinished":
        trace.step("planner", question="q").__enter__()
        return "left"
    if wanted == "many":
        for number in range(10_000):
            with trace.step("solver", number=number) as step:
                step.outputs = number
        return "many"
    if wanted == "deep":
        return _deep(trace, 150)
    if wanted == "not json":
        cycle = []
        cycle.append(cycle)
        with trace.step("planner", cycle=cycle, numbers={1, 2}) as step:
            step.outputs = object
        return "odd"
    if wanted == "changed":
        messages = [{"role": "user", "content": "hello"}]
        with trace.step("planner", messages=messages) as step:
            step.outputs = messages
            messages.append({"role": "assistant", "content": "hi"})
        messages.clear()
        return "changed"
    if wanted == "thread":
        with trace.step("planner", question="q"):
            worker = threading.Thread(target=_in_thread, args=(trace,))
            worker.start()
            worker.join()
        return "thread"
    with trace.step("solver", question=example["question"]) as step:
        step.outputs = "solved"
    return "solved"


def score(example, output):
    feedback = example.get("component_feedback")
    return {"score": 0.5, "feedback": "so so", "component_feedback": feedback}


def _in_thread(trace):
    with trace.step("solver", plan="of a thread") as step:
        step.outputs = "solved"


def _deep(trace, levels):
    if levels == 0:
        return "bottom"
    with trace.step("planner", levels=levels):
        return _deep(trace, levels - 1)
