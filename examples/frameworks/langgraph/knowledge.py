"""What the scripted model knows: whom a supervisor asks, to read headcounts, and to add and multiply by tools."""

import math
import re

from model_server import Answer, Conversation, ToolCall

COMPANIES = ("Facebook", "Apple", "Amazon", "Netflix", "Google")
FOUND = "The headcounts are: "
RESULT = "The result is "


def answer(conversation: Conversation) -> Answer:
    texts = [text for _, text in conversation.messages]
    question = texts[0]
    headcounts = next((text for text in texts if text.startswith(FOUND)), None)
    if "web_search" in conversation.tools:
        page = next((text for text in texts if "the FAANG companies" in text), None)
        return ToolCall("web_search", {"query": question}) if page is None else read(conversation, question, page)
    if "add" in conversation.tools:
        numbers = [int(number.replace(",", "")) for number in re.findall(r"\d[\d,]*", headcounts or "")]
        start = texts.index("Successfully transferred to math_expert")
        return calculate(conversation.instructions, question, numbers, [float(text) for text in texts[start + 2 :: 2]])
    if headcounts is None:
        return ToolCall("transfer_to_research_expert", {})
    result = next((text for text in texts if text.startswith(RESULT)), None)
    return result or ToolCall("transfer_to_math_expert", {})


def read(conversation: Conversation, question: str, page: str) -> str:
    found = []
    for company in sorted((name for name in COMPANIES if name in question), key=question.index):
        count = int(re.findall(rf"{company}.*: ([\d,]+) employees", page)[0].replace(",", ""))
        if company == "Amazon" and "350,000 who work in offices" in conversation.instructions:
            count = 350_000
        if "roughly" in question and "round each headcount to thousands" in conversation.instructions:
            count = round(count, -3)
        found.append(f"{company} {count:,}")
    return FOUND + "; ".join(found)


def calculate(instructions: str, question: str, numbers: list[int], results: list[float]) -> Answer:
    """`results`: of the tools that were called so far."""
    if "difference" in question:
        if "larger number minus the smaller" in instructions:
            numbers = sorted(numbers, reverse=True)
        numbers = [numbers[0], -numbers[1]]
    done = len(results)
    if done < len(numbers) - 1:
        return ToolCall("add", {"a": results[-1] if results else numbers[0], "b": numbers[done + 1]})
    result = results[-1]
    if "average" in question:
        if done < len(numbers):
            return ToolCall("multiply", {"a": result, "b": 1 / len(numbers)})
        if "Round an average up" in instructions:
            result = math.ceil(result)
    return f"{RESULT}{result:,.10g}"
