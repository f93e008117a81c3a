"""The same `evaluate` call for every stack under measurement, of a stated size in both directions."""

from typing import Any

TOKEN = "a-token-for-loopback-only"
CANDIDATE = {"rules": "card: lost 3, stolen 2\ntransfer: pending 4, late 1\n"}
TURN_BYTES = 330
MOST_TURNS = 60

QUESTION = (
    "I sent money to my brother last week and it has still not arrived. The app says that the transfer is pending, "
    "but nobody could tell me for how long, and the amount has already left my account. What should I do now? "
)
ANSWER = (
    "Thank you for waiting. Transfers to another bank take up to three working days, and a holiday in either country "
    "adds one more. Yours was sent on Tuesday in the afternoon, so it should be there tomorrow before noon. If it is "
    'not, write to us again with the reference below, and we shall trace it: "TR-2291/7".\n'
)


def row(number: int, turns: int) -> dict[str, Any]:
    """One example's data: a conversation as language-model programs trace it, about 330 bytes of JSON a turn."""
    exchange = (
        {"role": "user", "content": QUESTION, "tokens": 61, "cost": 0.00042},
        {"role": "assistant", "content": ANSWER, "tokens": 84, "verified": True},
    )
    return {"text": f"{number}: {QUESTION}", "turns": [exchange[turn % 2] for turn in range(turns)], "label": "pending"}


def request(size: int) -> dict[str, Any]:
    """Return a JSON-RPC `evaluate` request of about `size` bytes, in examples of at most 20 KB."""
    turns = max(1, round(size / TURN_BYTES) - 1)
    count = -(-turns // MOST_TURNS)
    return {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "evaluate",
        "params": {
            "candidate": CANDIDATE,
            "batch": [{"id": str(number), "data": row(number, min(turns, MOST_TURNS))} for number in range(count)],
            "capture_traces": True,
        },
    }


def result(data: Any) -> dict[str, Any]:
    """Return what a program answers for one example: its data comes back as the trajectory."""
    return {"status": "ok", "score": 1.0, "output": "pending_transfer", "trajectory": data, "seconds": 0.0}
