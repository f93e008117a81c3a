"""Which component the system prompt of a batch is, and which fields of a row its messages are."""

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from evolverpc_common.settings.sources import SettingsError

TABLE = "rollouts"
"""The table of `gepa.toml`."""


class ChatNames(BaseModel):
    """The table `rollouts` of `gepa.toml`.

    `system_prompt`: the component; by default the only one. `user_message`, `model_id`: fields of the row.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    system_prompt: str | None = None
    user_message: str = "user_message"
    model_id: str = "model_id"

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "ChatNames":
        """Return the table of a `gepa.toml`. Raises `SettingsError`."""
        try:
            return cls.model_validate(config.get(TABLE, {}))
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, (TABLE, *first["loc"])))
            raise SettingsError(f"gepa.toml: `{place}`: {first['msg']}") from None

    def texts(self, system_prompt: str | None, components: Iterable[str]) -> dict[str, str]:
        """Return the system prompt by its component. Raises `SettingsError`."""
        if system_prompt is None:
            return {}
        names = [self.system_prompt] if self.system_prompt is not None else list(components)
        if len(names) != 1:
            raise SettingsError(
                f"`system_prompt`: the program has the components {', '.join(names)}: give `candidate`, or name one as "
                f"`system_prompt` in the table `{TABLE}` of gepa.toml"
            )
        return {names[0]: system_prompt}

    def row(self, task: Mapping[str, Any], model_id: str | None) -> dict[str, Any]:
        """Return the row of a task. Raises `SettingsError`."""
        given: dict[str, Any] = {} if model_id is None else {self.model_id: model_id}
        row: Mapping[str, Any] = task["row"] if "row" in task else task["context"]
        if "row" not in task:
            given[self.user_message] = task["user_message"]
        if twice := given.keys() & row.keys():
            raise SettingsError(
                f"`tasks`: the row or context of {task['task_id']} has the field {', '.join(sorted(twice))}, which is "
                f"that of `model_id` or `user_message`: rename it, or change the table `{TABLE}` of gepa.toml"
            )
        return {**row, **given}
