"""What requests to a model's API and the failures in its responses look like."""

from __future__ import annotations

import functools
import json
import re
from typing import Any, NamedTuple

PATH = re.compile(
    r"/(completions|responses|embeddings|messages|chat|text/chat_stream|text/generation|text/generation_stream|generate"
    r"|embed|rerank|predictions|invoke|invocations)/?$|:(stream)?rawPredict$|:predict$",
    re.IGNORECASE,
)
"""Of OpenAI, Anthropic, Cohere, Ollama, Vertex, Replicate, Bedrock, watsonx, Databricks, and what is compatible."""

PATH_OF_MODELS = re.compile(
    r"/(chat/completions|images/(generations|edits|variations)|audio/(speech|transcriptions|translations)"
    r"|converse|converse-stream|invoke-with-response-stream)/?$|:(stream)?generateContent$|:(batch)?embedContents?$",
    re.IGNORECASE,
)
"""That only models have: what is sent there asks one, also if its body cannot be read."""

ASKED = {
    *("messages", "message", "prompt", "input", "inputs", "inputText", "contents", "content", "requests"),
    *("texts", "query", "instances", "anthropic_version"),
}
"""Fields of which a request to a model has one, beside the name of the model."""

MODEL_IN_PATH = re.compile(r"/(?:models?|deployments|engines|serving-endpoints|endpoints)/([^/:?]+)")
WITHOUT_A_NAME = "/chat/completions"
"""A path that needs no name of a model: servers of a single one expect none."""

TRANSIENT = re.compile(
    r"rate.?limit|too.?many|overload|quota|exhausted|unavailable|server.?error|^api_error$|internal|time.?d?.?out|deadline"
    r"|throttl|slow.?down|capacity|request.?limit.?exceeded|bandwidth.?limit|throughput.?exceeded|model.?stream.?error",
    re.IGNORECASE,
)
LASTING = re.compile(
    r"invalid|auth|permission|forbidden|denied|not.?found|content|context|policy|safety|too.?large|unsupported|validation",
    re.IGNORECASE,
)

MAX_NAME = 64
"""Characters of the name of an error; what is longer, or has spaces, is a sentence."""


_MAX_HOST = 256  # in the contract


class Endpoint(NamedTuple):
    """What a request is sent to. `host`: with its port if that is not the scheme's own."""

    host: str
    is_of_models: bool
    may_be_of_models: bool
    needs_no_name: bool
    model: str | None


class Request(NamedTuple):
    """Whether a request asks a model, and the model's name where it states one."""

    is_of_model: bool
    model: str | None = None


class StatedError(NamedTuple):
    """An error that a response states."""

    reason: str
    is_transient: bool


def is_transient_status(status: int) -> bool:
    """Return whether an HTTP status is of a transient failure."""
    return status in (408, 425, 429) or 500 <= status <= 599


def is_transient_code(code: str) -> bool:
    """Return whether the name of an error, such as `rate_limit_exceeded`, is of a transient failure."""
    return TRANSIENT.search(code) is not None


@functools.lru_cache(maxsize=64)
def endpoint_of(method: str, url: str) -> Endpoint:
    """Return what the method and the URL of a request show."""
    scheme, _, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    host = host.rpartition("@")[2].partition("?")[0].lower()
    default = {"http": ":80", "https": ":443"}.get(scheme)
    if default and host.endswith(default):
        host = host[: -len(default)]
    path = (slash + path).partition("?")[0]
    is_of_models = method == "POST" and PATH_OF_MODELS.search(path) is not None
    named = MODEL_IN_PATH.search(path)
    return Endpoint(
        host[:_MAX_HOST],
        is_of_models,
        is_of_models or (method == "POST" and PATH.search(path) is not None),
        path.rstrip("/").endswith(WITHOUT_A_NAME),
        named and named.group(1),
    )


def read_request(endpoint: Endpoint, body: Any) -> Request:
    """Return what a request asks; `body`: bytes or text, and anything else if it is not known."""
    if not endpoint.may_be_of_models:
        return Request(False)
    asked = _fields(body)
    if asked is None:
        return Request(endpoint.is_of_models, endpoint.model)
    model = asked.get("model") or asked.get("model_id") or endpoint.model
    if not ASKED.intersection(asked) or not (model or endpoint.needs_no_name):
        return Request(False)
    return Request(True, model if isinstance(model, str) else None)


def prompt_of(body: Any) -> str | None:
    """Return what is equal for the bodies of requests that ask the same, also of another model; None if unreadable."""
    asked = _fields(body)
    return None if asked is None else repr([(name, asked[name]) for name in sorted(ASKED.intersection(asked))])


def _fields(body: Any) -> dict[str, Any] | None:
    asked = parsed(body) if isinstance(body, (bytes, str)) else None
    return asked if isinstance(asked, dict) else None


def stated_error(answer: Any, *, in_stream: bool = False, is_error: bool = False) -> StatedError | None:
    """Return the error that a body, or one event of a stream, states; None if it states none.

    An error `in_stream` is transient, unless it states a reason that lasts. `is_error`: the event is called an error.
    """
    if isinstance(answer, list):  # Gemini's stream as one JSON text
        return next((found for found in map(stated_error, answer) if found is not None), None)
    if not isinstance(answer, dict):
        return StatedError("error event", True) if is_error else None
    inner, choices = answer.get("response"), answer.get("choices")
    holders = [answer, inner, *(choices if isinstance(choices, list) else ())]
    error = next((each["error"] for each in holders if isinstance(each, dict) and each.get("error")), None)
    if not error:
        if not is_error and answer.get("type") != "error":
            return None
        error, in_stream = answer, True
    codes = [error.get(name) for name in ("code", "status", "type", "message")] if isinstance(error, dict) else [error]
    for code in codes:
        number = int(code) if isinstance(code, (int, str)) and str(code).isdigit() else None
        if number is not None and 400 <= number <= 599:
            return StatedError(str(number), is_transient_status(number))
    texts = [code for code in codes if isinstance(code, str) and code != "error"]
    names = [text for text in texts if len(text) <= MAX_NAME and " " not in text]
    transient = next(filter(is_transient_code, names), None)
    if transient is not None:
        return StatedError(transient, True)
    if any(map(LASTING.search, names)):
        return StatedError(names[0], False)
    words = next(filter(None, map(TRANSIENT.search, texts)), None)
    if words is not None:
        return StatedError(words.group(), True)
    return StatedError(names[0] if names else "error", in_stream)


def parsed(text: Any) -> Any:
    """Return the JSON value of a text; None if it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
