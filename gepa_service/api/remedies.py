"""Name settings as requests name them in texts that were written for the command line, which no user of the API has."""

import re
from typing import Any

from gepa_client.settings.run_config import RunConfig

FLAG = re.compile(r"(?<![\w-])--([a-z]+(?:-[a-z]+)*)")


def as_fields(value: Any) -> Any:
    """Return a JSON value whose texts have `max_metric_calls` in place of the flag of that setting."""
    match value:
        case str():
            return FLAG.sub(_field, value)
        case list():
            return [as_fields(each) for each in value]
        case dict():
            return {name: as_fields(each) for name, each in value.items()}
    return value


def _field(found: re.Match[str]) -> str:
    name = found[1].replace("-", "_")
    return f"`{name}`" if name in RunConfig.model_fields else found[0]
