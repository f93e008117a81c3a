"""Calls the model that each row names, all rows at once on one loop."""

import os

import httpx

seed_candidate = {"prompt": "Answer."}


async def run(example, candidate):
    async with httpx.AsyncClient() as client:
        asked = {"model": example["model"], "messages": []}
        return (await client.post(f"{os.environ['PROVIDER_URL']}/chat/completions", json=asked)).status_code
