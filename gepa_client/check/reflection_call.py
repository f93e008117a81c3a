"""One call of the reflection model: a wrong key, address or name is found before a run spends its budget."""

import time
from collections.abc import Mapping
from typing import Any

from evolverpc_common.display_text import line
from gepa_client.check.check_report import StepVerdict
from gepa_client.errors import ConnectionLost

PROMPT = "Answer with one word: ready"
LONGEST_REASON = 300
"""Characters of a provider's error that are shown."""


def call_reflection_model(name: str, kwargs: Mapping[str, Any]) -> tuple[StepVerdict, str]:
    """Return how one short call of the model ended, and what it cost.

    `kwargs`: the arguments of every call. A failure that may pass (a rate limit, a server error) is a warning: the run
    tries such calls again.
    """
    from gepa_client.gepa.litellm_model import (
        ADDRESS,
        LiteLLMModel,
        address_of,
        may_pass,
    )  # litellm takes seconds to import

    began = time.monotonic()
    try:
        answer = LiteLLMModel(name, max_attempts=1, **kwargs).complete(PROMPT)
    except ConnectionLost as error:
        return "failed", str(error)
    except Exception as error:  # noqa: BLE001 - litellm raises many kinds, its bare Exception among them
        reason = f"{name}: {line(f'{type(error).__name__}: {error}', LONGEST_REASON)}"
        if may_pass(error):
            return "warning", f"{reason} (a run calls it again)"
        if (where := address_of(error)) is None:
            return "failed", f"{reason}; set its key (any text, if its server needs none) or its name"
        return "failed", f"{reason}; it was called at {where}; set its key, its name or, {ADDRESS}"
    cost = "at an unknown price" if answer.cost_usd is None else f"for ${answer.cost_usd:.6f}"
    return "ok", f"by {name}, which answered one call in {time.monotonic() - began:.1f} s {cost}"
