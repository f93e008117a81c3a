"""What the scripted model knows of the weather: to read the place of a question, and to write what a tool returned."""

import json
import re

from model_server import Answer, Conversation, ToolCall

PLACE = re.compile(r" in ([\w ]+?)(?: now)?[.?]")
AIRPORTS = {"SFO": "San Francisco", "LHR": "London", "JFK": "New York", "NRT": "Tokyo", "CDG": "Paris", "FCO": "Rome"}
PROVINCES = {"Toronto": "Ontario", "Calgary": "Alberta", "Halifax": "Nova Scotia", "Winnipeg": "Manitoba"}


def answer(conversation: Conversation) -> Answer:
    question = conversation.messages[0][1]
    if conversation.messages[-1][0] == "user":
        return ToolCall("weatherTool", {"location": location(conversation.tools["weatherTool"], question)})
    weather = json.loads(conversation.last)
    celsius = weather["temperatureCelsius"]
    american = "[US] gets degrees Fahrenheit" in conversation.instructions and question.startswith("[US]")
    degrees = f"{celsius * 9 / 5 + 32:.0f} °F" if american else f"{celsius} °C"
    text = f"It is {degrees} and {weather['conditions']} in {weather['location']}."
    asked_about_sports = question.removeprefix("[US] ").startswith("Can ")
    if asked_about_sports and "add Outdoor: yes from 15" in conversation.instructions:
        text += " Outdoor: yes" if celsius >= 15 else " Outdoor: no"
    return text


def location(description: str, question: str) -> str:
    found = PLACE.search(question)
    assert found is not None, "the question of the rows"
    place = found[1]
    if place in AIRPORTS and "for the code of its airport" in description:
        return AIRPORTS[place]
    if place in PROVINCES and "Canada with its province" in description:
        return f"{place}, {PROVINCES[place]}"
    return place
