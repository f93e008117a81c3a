"""A language model by its litellm name; the only file that knows litellm, and imports it when first called."""

import logging
import os
import random
import threading
import time
from typing import Any

logger = logging.getLogger(__name__)

TRANSIENT_STATUS = frozenset({408, 409, 425, 429})
LONGEST_PAUSE_S = 60.0


class LiteLLMModel:
    """A callable that takes a prompt or chat messages and returns text, retrying what may pass.

    `name`: as litellm knows it, such as `openai/gpt-5`. `max_attempts`: requests for one answer, the first included.
    `pause_s`: the mean wait in seconds after the first failure, doubled after each. Everything else goes to
    `litellm.completion` (`temperature`, `api_base`, `timeout`, ...).

    `total_cost` (USD), `total_tokens_in`, `total_tokens_out` sum what is known; `unpriced_calls` counts answers of a
    model litellm knows no price of: their cost is missing from the total, not zero.
    """

    def __init__(self, name: str, *, max_attempts: int = 5, pause_s: float = 1.0, **kwargs: Any) -> None:
        self.name = name
        self.max_attempts = max_attempts
        self.pause_s = pause_s
        self.kwargs = kwargs
        self.total_cost = 0.0
        self.total_tokens_in = 0
        self.total_tokens_out = 0
        self.unpriced_calls = 0
        self._lock = threading.Lock()
        self._random = random.SystemRandom()  # never the global generator, which GEPA's runs may depend on

    def __repr__(self) -> str:
        return f"LiteLLMModel({self.name!r})"

    def __call__(self, prompt: str | list[dict[str, Any]]) -> str:
        """The model's answer, as text.

        Raises:
            Exception: litellm's own error, when it is permanent (a wrong key, an unknown model) or stayed.
        """
        litellm = _litellm()
        messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        for attempt in range(1, self.max_attempts + 1):
            try:
                completion = litellm.completion(
                    model=self.name,
                    messages=messages,
                    **{"drop_params": True, "num_retries": 0, "max_retries": 0, **self.kwargs},
                )
                break
            except Exception as error:
                if attempt == self.max_attempts or not _may_pass(error):
                    raise
                time.sleep(min(self.pause_s * 2 ** (attempt - 1), LONGEST_PAUSE_S) * self._random.uniform(0.75, 1.25))
        self._count(litellm, completion)
        choice = completion.choices[0]
        if choice.finish_reason == "length":
            logger.warning("%s stopped at its length limit; raise max_tokens for whole answers", self.name)
        return choice.message.content or ""

    def _count(self, litellm: Any, completion: Any) -> None:
        usage = getattr(completion, "usage", None)
        cost = _price(litellm, completion)
        with self._lock:
            self.total_tokens_in += getattr(usage, "prompt_tokens", 0) or 0
            self.total_tokens_out += getattr(usage, "completion_tokens", 0) or 0
            if cost is not None:
                self.total_cost += cost
                return
            self.unpriced_calls += 1
            first = self.unpriced_calls == 1
        if first:
            logger.warning("no price is known for %s: its cost is not counted, and no cost limit can hold", self.name)


def _litellm() -> Any:
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else its import fetches prices over the network
    import litellm

    litellm.suppress_debug_info = True  # else it prints advice to stdout, where a child writes its events
    return litellm


def _price(litellm: Any, completion: Any) -> float | None:
    """USD, or None for a model without a price; litellm raises or answers 0 alike for those it does not know."""
    try:
        cost = litellm.completion_cost(completion_response=completion)
    except Exception:  # noqa: BLE001 - litellm raises many kinds, its bare Exception among them, for an unknown model
        return None
    return float(cost) if cost else None


def _may_pass(error: Exception) -> bool:
    """Whether the same request may succeed later: rate limits, server errors, time-outs and lost connections."""
    status = getattr(error, "status_code", None)
    if isinstance(status, int):
        return status in TRANSIENT_STATUS or status >= 500
    return isinstance(error, ConnectionError | TimeoutError)
