"""Calls a model by litellm."""

import os

seed_candidate = {"prompt": "Answer."}


def run(example, candidate):
    from litellm import completion

    asked = {"model": "openai/gpt-4o-mini", "messages": [{"role": "user", "content": "why?"}]}
    return completion(**asked, api_base=os.environ["PROVIDER_URL"], api_key="x").choices[0].message.content
