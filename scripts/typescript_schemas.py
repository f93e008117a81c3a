"""Print, as one JSON object, the schemas and errors that `npm run generate` of `clients/typescript` makes types of."""

import inspect
import json
from typing import Any, Literal, get_type_hints

from pydantic import TypeAdapter

from evolverpc.optimization import KEYWORDS
from evolverpc_common.settings.definition import Setting
from gepa_client.journal.run_events import Event
from gepa_client.page.page_events import KEYS, AnyPageEvent
from gepa_client.page.run_details import AnyPageAnswer
from gepa_client.settings.run_config import RunConfig
from protocol import errors
from rpc_server.worker import call_failures, model_apis, spans


def schemas() -> dict[str, Any]:
    """Return those of the settings of `optimize`, of its events, and a run's page; errors; marks of spans and calls."""
    return {
        "settings": {name: _property(setting) for name, setting in KEYWORDS.items()},
        "events": _schema(Event),
        "pageEvents": _schema(AnyPageEvent, "validation"),
        "pageEventKeys": KEYS,
        "pageAnswers": _schema(AnyPageAnswer),
        "spans": {
            name: getattr(spans, name)
            for name in (
                *("OPERATIONS", "OPENINFERENCE_KINDS", "SYSTEM_ROLES", "CALL_TYPES", "TEXT_TYPES", "TOKENS"),
                *("SHORTEST_TEXT", "LONGEST_MODEL"),
            )
        },
        "wire": {
            **{
                name: getattr(model_apis, name).pattern
                for name in ("PATH", "PATH_OF_MODELS", "MODEL_IN_PATH", "TRANSIENT", "LASTING")
            },
            "ASKED": sorted(model_apis.ASKED),
            "WITHOUT_A_NAME": model_apis.WITHOUT_A_NAME,
            "MAX_NAME": model_apis.MAX_NAME,
            "HAS_AN_END": call_failures.HAS_AN_END.pattern.decode(),
            "ENDS": "|".join(mark.pattern.decode() for mark in call_failures.ENDS),
        },
        "errors": {kind.__name__: inspect.getdoc(kind) for kind in errors.ALL},
    }


def _schema(union: Any, mode: Literal["serialization", "validation"] = "serialization") -> dict[str, Any]:
    """Return the schema; `validation` has the members of a certificate, which leaves out absent ones itself."""
    return TypeAdapter[Any](union).json_schema(mode=mode)


def _property(setting: Setting) -> dict[str, Any]:
    kind = TypeAdapter[Any](get_type_hints(RunConfig, include_extras=True)[setting.name]).json_schema()
    default = "" if setting.default_text == "none" else f" Default: {setting.default_text}."
    return {**kind, "description": f"{setting.description}{default}"}


if __name__ == "__main__":
    print(json.dumps(schemas()))
