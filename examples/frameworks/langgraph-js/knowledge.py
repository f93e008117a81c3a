"""What the scripted model knows of conversations: which sentences are facts, and how to store one."""

import re

from gepa_client.cli.model_server import Answer, Conversation, ToolCall

SENTENCE = re.compile(r"(?:I|My (?P<person>\w+)) (?P<verb>live in|am allergic to|plays?|speaks?) (?P<what>\w+)\.")
COUNTRIES = {
    "Lyon": "France",
    "Porto": "Portugal",
    "Kyoto": "Japan",
    "Bergen": "Norway",
    "Leeds": "England",
    "Turin": "Italy",
    "Cusco": "Peru",
    "Gdansk": "Poland",
}


def answer(conversation: Conversation) -> Answer:
    facts = list(SENTENCE.finditer(conversation.messages[0][1]))
    if "nothing about people other than the user" in conversation.instructions:
        facts = [fact for fact in facts if not fact["person"]]
    if "every fact of a message" not in conversation.instructions:
        facts = facts[:1]
    stored = sum(role == "tool" for role, _ in conversation.messages)
    if stored == len(facts):
        return "Nice to meet you!"
    content = memory(conversation.tools["upsertMemory"], facts[stored])
    return ToolCall("upsertMemory", {"content": content, "context": facts[stored][0]})


def memory(description: str, fact: re.Match[str]) -> str:
    person, verb, what = fact["person"], fact["verb"], fact["what"]
    if verb == "am allergic to":
        return f"Health: allergic to {what}" if "Begin what concerns health" in description else f"Allergic to {what}"
    if verb == "live in":
        return f"Lives in {what}, {COUNTRIES[what]}" if "a city with its country" in description else f"Lives in {what}"
    return f"{person.capitalize()} {verb} {what}" if person else f"{verb.capitalize()}s {what}"
