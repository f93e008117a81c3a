"""What events of the page have in common: a number, and texts of which they hold the beginning."""

from pydantic import BaseModel, ConfigDict

from gepa_client.analysis.proposals import Excerpt

TEXT_SENT = 20_000
"""Characters of a text that events hold; of a longer one they hold the first `TEXT_BEGINNING`."""

TEXT_BEGINNING = 2_000


class Part(BaseModel):
    """A part of an event."""

    model_config = ConfigDict(extra="forbid", ser_json_inf_nan="strings", defer_build=True)


class Fact(Part):
    """An event."""

    id: int = 0
    """From 0 in the order of this server; given when the event is added to a log."""


def sent_text(text: str) -> Excerpt:
    """Return a text as events hold it."""
    if len(text) <= TEXT_SENT:
        return Excerpt(text=text)
    return Excerpt(text=text[:TEXT_BEGINNING], omitted=len(text) - TEXT_BEGINNING)
