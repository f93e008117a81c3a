"""What the scripted model knows of flights: to read a page, and to choose the cheapest."""

import datetime
import json
import re

from model_server import Answer, Conversation, ToolCall

FLIGHT = re.compile(
    r"Flight (?P<number>\S+)\n- Price: \$(?P<price>\d+)(?P<star>\*?)\n- From: .*\((?P<origin>\w+)\)\n"
    r"- To: .*\((?P<destination>\w+)\)\n- Date: (?P<first>\d+)/(?P<second>\d+)/(?P<year>\d+)"
)
ASKED = re.compile(r"a flight from (\w+) to (\w+) on (\S+)")


def answer(conversation: Conversation) -> Answer:
    if "extract_flights" not in conversation.tools:
        return ToolCall("final_result", {"response": extract(conversation.instructions, conversation.last)})
    if conversation.messages[-1][0] == "user":
        return ToolCall("extract_flights", {})
    asked = ASKED.search(conversation.messages[0][1])
    assert asked is not None, "the question of the rows"
    found = choose(conversation.instructions, json.loads(conversation.last), *asked.groups())
    return ToolCall("final_result_FlightDetails", found) if found else ToolCall("final_result_NoFlightFound", {})


def extract(instructions: str, page: str) -> list[dict[str, object]]:
    flights = []
    for found in FLIGHT.finditer(page):
        day, month = int(found["second"]), int(found["first"])
        if month > 12 or "day first" in instructions:
            day, month = month, day
        flights.append(
            {
                "flight_number": found["number"],
                "price": int(found["price"]) + (40 if found["star"] and "add 40" in instructions else 0),
                "origin": found["origin"],
                "destination": found["destination"],
                "date": datetime.date(int(found["year"]), month, day).isoformat(),
            }
        )
    return flights


def choose(instructions: str, flights: list[dict], origin: str, destination: str, date: str) -> dict | None:
    asked = {"origin": origin, "destination": destination, "date": date}
    fit = [flight for flight in flights if flight.items() >= asked.items()]
    if "XB are not to be booked" in instructions:
        fit = [flight for flight in fit if not flight["flight_number"].startswith("XB")]
    fit.sort(key=lambda flight: flight["price"])
    if "SK if it costs at most 50 more" in instructions:
        partners = (flight for flight in fit if flight["flight_number"].startswith("SK"))
        return next((flight for flight in partners if flight["price"] <= fit[0]["price"] + 50), fit[0] if fit else None)
    return fit[0] if fit else None
