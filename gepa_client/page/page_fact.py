"""What events and answers of the page have in common: texts of which they hold the beginning."""

from pydantic import BaseModel, ConfigDict

from gepa_client.analysis.proposals import Excerpt

TEXT_SENT = 20_000
"""Characters of a text that events hold; of a longer one they hold the first `TEXT_BEGINNING`."""

TEXT_BEGINNING = 2_000


class Part(BaseModel):
    """An event or an answer, or a part of one."""

    model_config = ConfigDict(extra="forbid", ser_json_inf_nan="strings", defer_build=True)


def sent_text(text: str) -> Excerpt:
    """Return a text as events hold it."""
    if len(text) <= TEXT_SENT:
        return Excerpt(text=text)
    return Excerpt(text=text[:TEXT_BEGINNING], omitted=len(text) - TEXT_BEGINNING)
