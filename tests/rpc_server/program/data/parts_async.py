"""Two components of which one runs twice at the same time."""

import asyncio

seed_candidate = {"outer": "Ask.", "inner": "Answer."}


async def run(example, candidate, trace):
    async def answer(number):
        await asyncio.sleep(0.01 * (3 - number))
        return number

    async def ask(numbers):
        return await asyncio.gather(*(trace.step("inner", answer, number=number) for number in numbers))

    return await trace.step("outer", ask, numbers=[1, 2])


def score(example, output):
    return 1.0
