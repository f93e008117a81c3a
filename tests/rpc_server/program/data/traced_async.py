"""Examples at the same time, each with spans of its own; a thread has the context of none."""

import asyncio
import threading

from opentelemetry import trace

seed_candidate = {"planner": "Plan the trip in days."}
tracer = trace.get_tracer("traced")
STARTED = []
ALL = asyncio.Event()


def lone():
    with tracer.start_as_current_span("lone", attributes={"gen_ai.operation.name": "chat"}):
        pass


async def run(example, candidate):
    with tracer.start_as_current_span(example["name"], attributes={"gen_ai.operation.name": "chat"}):
        STARTED.append(example["name"])
        if len(STARTED) == example["of"]:
            ALL.set()
        await ALL.wait()
        thread = threading.Thread(target=lone)
        thread.start()
        thread.join()
        with tracer.start_as_current_span("within " + example["name"], attributes={"gen_ai.operation.name": "chat"}):
            pass
    return example["name"]
