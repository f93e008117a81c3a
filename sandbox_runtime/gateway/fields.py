"""The fields of a request body that the gateway forwards, for each provider API; any other field is refused by name.

A field that the gateway does not know may make a provider, or a proxy in front of it, call another model, another
address or another account. The names are those of the OpenAI and Anthropic API references, and the sampling fields of
OpenAI-compatible servers. `Provider.extra_fields` adds more for one provider.
"""

from collections.abc import Mapping

_SAMPLING = frozenset({"temperature", "top_p", "top_k", "min_p", "seed", "stop", "user", "repetition_penalty"})
_OPENAI = _SAMPLING | {
    *("model", "stream", "stream_options", "logit_bias", "frequency_penalty", "presence_penalty", "top_logprobs"),
    *("metadata", "parallel_tool_calls", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention"),
    *("reasoning", "safety_identifier", "service_tier", "store", "thinking", "tool_choice", "tools"),
}
_COUNTED = frozenset(
    {"model", "messages", "system", "tools", "tool_choice", "thinking", "output_config", "cache_control", "speed"}
)

FORWARDED: Mapping[str, frozenset[str]] = {
    "/chat/completions": _OPENAI
    | {
        *("messages", "max_tokens", "max_completion_tokens", "n", "logprobs", "audio", "modalities", "prediction"),
        *("function_call", "functions", "reasoning_effort", "response_format", "verbosity", "web_search_options"),
    },
    "/completions": _OPENAI | {"prompt", "max_tokens", "n", "best_of", "logprobs", "echo", "suffix"},
    "/responses": _OPENAI
    | {
        *("input", "instructions", "prompt", "conversation", "previous_response_id", "max_output_tokens", "text"),
        *("max_tool_calls", "background", "include", "context_management", "truncation"),
    },
    "/embeddings": frozenset({"model", "input", "dimensions", "encoding_format", "user"}),
    "/messages": _COUNTED
    | {
        *("max_tokens", "stream", "temperature", "top_k", "top_p", "stop_sequences", "metadata", "service_tier"),
        *("container", "context_management", "compaction", "diagnostics", "inference_geo", "mcp_servers"),
        *("output_format", "betas"),
    },
    "/messages/count_tokens": _COUNTED | {"context_management", "mcp_servers", "betas"},
}
"""By path below `/v1`. `web_search_options`, `mcp_servers`, `container` and hosted tools are judged in `reaching`."""


def first_refused(path: str, body: Mapping[str, object], extra: frozenset[str]) -> str | None:
    """The first field of the body that is not forwarded on this path; None if all are."""
    return next((name for name in body if name not in FORWARDED[path] and name not in extra), None)
