"""A language model by its litellm name; the only file that knows litellm, and imports it when first called."""

import contextlib
import importlib.util
import logging
import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

from evolverpc_common.display_text import one_line, shell_line
from evolverpc_common.model_prices import PriceTable, TokenCounts
from evolverpc_common.rate_limiter import RateLimiter
from gepa_client.errors import ConnectionLost
from gepa_client.journal.answer_entries import CUT_OFF
from gepa_client.settings.run_settings import MODEL_FORM
from gepa_client.transport.event_loop import CancelToken

logger = logging.getLogger(__name__)

TRANSIENT_STATUS = frozenset({408, 409, 425, 429})
HOPELESS_STATUS = frozenset({401, 404})
UNKNOWN_PROVIDER = "LLM Provider NOT provided"
CREDENTIALS = ("api_key", "api_base", "base_url")
"""Arguments of a call that give it a key, or another address that may want none."""

ELSEWHERE = ("OPENAI_API_BASE", "OPENAI_BASE_URL", "ANTHROPIC_AUTH_TOKEN")
"""Variables that do the same but that litellm's check of the environment leaves out; by prefix of the key."""

KEYS = {
    "anthropic": ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
    "gemini": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    "openai": ("OPENAI_API_KEY", "OPENAI_API_BASE", "OPENAI_BASE_URL"),
}
"""Variables of which providers need one, the first of them a key: known without litellm, whose import takes seconds."""

LONGEST_PAUSE_S = 60.0
LONGEST_ERROR = 300
"""Characters of an error that `on_retry` gets."""

ADDRESS = "if that is not its address, set `api_base` in `reflection_lm_kwargs`"


@dataclass(frozen=True, slots=True)
class Completion:
    """A model's answer and its cost; None for what is not reported: a model without a price, an answer without usage.

    `cost_usd`: US dollars. Failed requests before it are not included: their cost is not reported. `cut_off`: it ended
    at the limit of tokens.
    """

    text: str
    cost_usd: float | None
    input_tokens: int | None
    output_tokens: int | None
    cut_off: bool = False


class LiteLLMModel:
    """A callable that takes a prompt or chat messages and returns text, retrying transient failures.

    `name`: as litellm knows it, such as `openai/gpt-5`. `max_attempts`: requests for one answer, the first included.
    `pause_s`: the mean wait in seconds after the first failure, doubled after each; a server's `Retry-After` is waited
    for too, up to 60 s. `per_minute`: requests that may start in a minute, evenly spaced over all threads, repeats
    included; None for no limit. `cancel_token`: once it is cancelled no further request starts. `prices`: those that
    precede litellm's. Further arguments go to `litellm.completion` (`temperature`, `api_base`, `timeout`, ...).

    `total_cost`: the known cost of its answers in USD, which GEPA reads for `max_reflection_cost`.
    """

    def __init__(
        self,
        name: str,
        *,
        max_attempts: int = 5,
        pause_s: float = 1.0,
        per_minute: float | None = None,
        cancel_token: CancelToken | None = None,
        on_retry: Callable[[str], None] = lambda _error: None,
        prices: PriceTable | None = None,
        **kwargs: Any,
    ) -> None:
        self.name = name
        self.price = None if prices is None else prices.named(name)
        self.on_retry = on_retry
        self.max_attempts = max_attempts
        self.pause_s = pause_s
        self.kwargs = kwargs
        self.total_cost = 0.0
        self._lock = threading.Lock()
        self._limiter = None if per_minute is None else RateLimiter(1, 60.0 / per_minute)
        self._cancel_token = CancelToken() if cancel_token is None else cancel_token
        self._random = random.SystemRandom()  # never the global generator, which GEPA's runs may depend on

    def __repr__(self) -> str:
        return f"LiteLLMModel({self.name!r})"

    def __call__(self, prompt: str | list[dict[str, Any]]) -> str:
        """Return the text of `complete`."""
        return self.complete(prompt).text

    def complete(self, prompt: str | list[dict[str, Any]]) -> Completion:
        """Return the model's answer to a prompt or chat messages, and its cost.

        Raises:
            ConnectionLost: no connection could be made, or none stayed open, in all attempts.
            Exception: litellm's own error, if it is permanent (a wrong key) or the attempts are used up.
            Interrupted: `cancel_token` was cancelled before the request, or before it could be repeated.
        """
        litellm = loaded_litellm()
        messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        answer = self._answer(litellm, messages)
        choice = answer.choices[0]
        cut_off = choice.finish_reason == CUT_OFF
        if cut_off:
            logger.warning("%s stopped at its length limit; raise max_tokens for whole answers", self.name)
        usage = getattr(answer, "usage", None)
        read, written = getattr(usage, "prompt_tokens", None), getattr(usage, "completion_tokens", None)
        cost_usd = _price(litellm, answer)
        if self.price is not None and usage is not None:
            cost_usd = self.price.cost(TokenCounts(input=read or 0, output=written or 0))
        completion = Completion(choice.message.content or "", cost_usd, read, written, cut_off)
        with self._lock:
            self.total_cost += completion.cost_usd or 0.0
        return completion

    def _answer(self, litellm: Any, messages: list[dict[str, Any]]) -> Any:
        for attempt in range(1, self.max_attempts + 1):
            self._cancel_token.pause(0.0 if self._limiter is None else self._limiter.reserve())
            try:
                return litellm.completion(
                    model=self.name,
                    messages=messages,
                    **{"drop_params": True, "num_retries": 0, "max_retries": 0, **self.kwargs},
                )
            except Exception as error:
                if attempt == self.max_attempts or not may_pass(error):
                    if (lost := _lost_connection(error)) is not None:
                        raise ConnectionLost(f"the model {self.name} does not answer at {lost}; {ADDRESS}") from error
                    raise
                pause_s = min(self.pause_s * 2 ** (attempt - 1), LONGEST_PAUSE_S) * self._random.uniform(0.75, 1.25)
                asked_s = _retry_after(error)
                self.on_retry(one_line(_lost_connection(error) or f"{type(error).__name__}: {error}", LONGEST_ERROR))
            self._cancel_token.pause(max(pause_s, asked_s))
        raise AssertionError("the last attempt returns or raises")


def fault(name: str, kwargs: Mapping[str, Any]) -> str | None:
    """Return why no call to this model can succeed, without making one; None if nothing is known to be missing.

    `kwargs`: the arguments of every call. Providers that can find credentials in other ways than a key (a cloud's own
    configuration, a local server) are left for the first call to judge.
    """
    if (missing := missing_key(name, kwargs)) is not None:
        return missing or None
    litellm = loaded_litellm()
    try:
        litellm.get_llm_provider(
            name,
            custom_llm_provider=kwargs.get("custom_llm_provider"),
            api_base=kwargs.get("api_base") or kwargs.get("base_url"),
            api_key=kwargs.get("api_key"),
        )
    except litellm.BadRequestError:
        return f"{name}: no provider is known by this name; {MODEL_FORM}"
    if "custom_llm_provider" in kwargs or any(kwargs.get(key) for key in CREDENTIALS):
        return None
    missing = litellm.validate_environment(name)["missing_keys"]
    if not missing or not all(key.endswith("_API_KEY") for key in missing):
        return None
    prefixes = tuple(key.removesuffix("API_KEY") for key in missing)
    if any(os.environ.get(variable) for variable in ELSEWHERE if variable.startswith(prefixes)):
        return None
    return _needs_key(name, missing)


def missing_key(name: str, kwargs: Mapping[str, Any]) -> str | None:
    """Return why a call would fail for want of a key, without loading litellm: "" if it would not.

    None if only litellm knows: other providers, and a file .env from which it sets variables when it is loaded.
    """
    provider, _, model = name.partition("/")
    if provider not in KEYS or not model or "custom_llm_provider" in kwargs:
        return None
    if any(kwargs.get(key) for key in CREDENTIALS) or any(map(os.environ.get, KEYS[provider])):
        return ""
    return None if _reads_variables() else _needs_key(name, KEYS[provider][:1])


def _reads_variables() -> bool:
    """Whether litellm would find a file .env, which it looks for above its own folder."""
    found = importlib.util.find_spec("litellm")
    folders = Path(found.origin).parents if found is not None and found.origin is not None else ()
    return os.environ.get("LITELLM_MODE", "DEV") == "DEV" and any((each / ".env").is_file() for each in folders)


def _needs_key(name: str, variables: Sequence[str]) -> str:
    own = " (any text, with OPENAI_BASE_URL for a server of your own)" if name.startswith("openai/") else ""
    return f"{name} needs a key: set {' or '.join(variables)}{own}, or try without one: `{shell_line(['demo-model'])}`"


def is_hopeless(error: Exception) -> bool:
    """Whether every further call will end so too: a missing or wrong key, an unknown model or provider."""
    return (
        getattr(error, "status_code", None) in HOPELESS_STATUS or UNKNOWN_PROVIDER in str(error) or _never_sent(error)
    )


def _never_sent(error: BaseException | None) -> bool:
    """Whether openai's client had no credentials; litellm labels that a server error."""
    import openai  # a dependency of litellm, loaded with it

    # the base of its errors: what is raised before anything is sent
    return any(type(each) is openai.OpenAIError for each in _causes(error))


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, and those that led to it."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def preload() -> None:
    """Begin to load litellm, which takes seconds, in a thread: the first call of a model waits for what is left."""
    threading.Thread(target=loaded_litellm, name="litellm", daemon=True).start()


def loaded_litellm() -> Any:
    """Return litellm, which takes seconds to load."""
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else its import fetches prices over the network
    import litellm

    litellm.suppress_debug_info = True  # else it prints advice to stdout, where a child writes its events
    return litellm


def _price(litellm: Any, completion: Any) -> float | None:
    """Return USD, or None for a model without a price; litellm raises or returns 0 for models it does not know."""
    try:
        cost = litellm.completion_cost(completion_response=completion)
    except Exception:  # noqa: BLE001 - litellm raises many kinds, its bare Exception among them, for an unknown model
        return None
    return float(cost) if cost else None


def may_pass(error: Exception) -> bool:
    """Whether the same request may succeed later: rate limits, server errors, time-outs and lost connections."""
    if is_hopeless(error):
        return False
    status = getattr(error, "status_code", None)
    if isinstance(status, int):
        return status in TRANSIENT_STATUS or status >= 500
    return isinstance(error, ConnectionError | TimeoutError)


def address_of(error: BaseException | None) -> str | None:
    """Return the address that answered with an error; None if none was called, or none is known."""
    if _never_sent(error):
        return None
    found = None
    for each in _causes(error):
        with contextlib.suppress(RuntimeError, AttributeError):  # it has no request, or does not know it
            found = str(each.request.url)  # type: ignore[attr-defined]
    return found


def _lost_connection(error: BaseException | None) -> str | None:
    """Return the address and why no answer came from it, if the connection failed; None for any other error."""
    import httpx  # litellm sends its requests by it

    for each in _causes(error):
        if isinstance(each, httpx.TransportError):
            with contextlib.suppress(RuntimeError):  # it does not know its request
                return f"{each.request.url}: {str(each).rstrip('.') or type(each).__name__}"
    return None


def _retry_after(error: Exception) -> float:
    """Return the seconds the server asks to wait, at most `LONGEST_PAUSE_S`; 0.0 if it does not ask in a known way."""
    headers = getattr(getattr(error, "response", None), "headers", None)
    asked = (getattr(error, "litellm_response_headers", None) or headers or {}).get("retry-after", "")
    try:
        seconds = float(asked)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(asked).timestamp() - time.time()
        except ValueError:
            return 0.0
    return min(seconds, LONGEST_PAUSE_S) if seconds > 0 else 0.0
