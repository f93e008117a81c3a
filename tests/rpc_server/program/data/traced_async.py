"""Examples at the same time, each with spans of its own; a thread has the context of none."""

import asyncio
import threading

from opentelemetry import trace

seed_candidate = {"planner": "Plan the trip in days."}
tracer = trace.get_tracer("traced")
STARTED, OVER = asyncio.Barrier(5), asyncio.Barrier(5)


def lone():
    with tracer.start_as_current_span("lone", attributes={"gen_ai.operation.name": "chat"}):
        pass


async def run(example, candidate):
    with tracer.start_as_current_span(example["name"], attributes={"gen_ai.operation.name": "chat"}):
        await STARTED.wait()
        thread = threading.Thread(target=lone)
        thread.start()
        thread.join()
        await OVER.wait()
        with tracer.start_as_current_span("within " + example["name"], attributes={"gen_ai.operation.name": "chat"}):
            pass
    return example["name"]
