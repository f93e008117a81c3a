"""What the scripted model knows of a shop: to search the pages on a product, and to report its price."""

import json
import re

from gepa_client.cli.model_server import Answer, Conversation, ToolCall

PRODUCT = re.compile(r"the (\w+ \w+)(?: cost)?\?")
PRICE = re.compile(r": (\d+) euros( net)?, (\d+)")


def answer(conversation: Conversation) -> Answer:
    asked = PRODUCT.search(conversation.messages[0][1])
    assert asked is not None, "the question of the rows"
    if "research" in conversation.tools:
        if conversation.messages[-1][0] == "user":
            return ToolCall("research", {"task": conversation.last})
        return reply(conversation.instructions, conversation.last)
    if conversation.messages[-1][0] == "user":
        return ToolCall("search", {"query": asked[1]})
    return research(conversation.instructions, json.loads(conversation.last))


def research(instructions: str, pages: list[str]) -> str:
    prices = [(int(year), int(price), bool(net)) for page in pages for price, net, year in PRICE.findall(page)]
    if not prices:
        return "There is no page on it."
    _, price, net = max(prices) if "the newest price alone" in instructions else prices[0]
    return f"The price is {price * 119 // 100 if net and 'Add 19 % tax' in instructions else price} euros."


def reply(instructions: str, found: str) -> str:
    price = re.search(r"\d+", found)
    if price is None:
        return "We do not sell it." if "Answer We do not sell it" in instructions else "I found nothing."
    costs = int(price[0])
    if costs < 100 and "5 euros for delivery" in instructions:
        costs += 5
    return f"It costs {costs} euros."
