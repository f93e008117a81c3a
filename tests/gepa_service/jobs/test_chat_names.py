"""System prompt, messages and model of a batch as the texts and rows of a program."""

from typing import Any

import pytest

from evolverpc_common.settings.sources import SettingsError
from gepa_service.jobs.chat_names import ChatNames

TABLE = {"system_prompt": "rules", "user_message": "text", "model_id": "model"}
MESSAGE: dict[str, Any] = {"task_id": "t", "user_message": "hi", "context": {"label": "a"}}


def test_the_table_of_a_program_names_its_component_and_fields() -> None:
    names = ChatNames.of({"rollouts": TABLE})
    assert names.texts("Be brief.", ["rules", "style"]) == {"rules": "Be brief."}
    assert names.row(MESSAGE, "m") == {"text": "hi", "label": "a", "model": "m"}
    assert names.row({"task_id": "t", "row": {"text": "hi"}}, None) == {"text": "hi"}


def test_without_a_table_the_only_component_is_the_system_prompt() -> None:
    names = ChatNames.of({})
    assert names.texts("Be brief.", ["rules"]) == {"rules": "Be brief."}
    assert names.texts(None, ["rules", "style"]) == {}
    assert names.row(MESSAGE, "m") == {"user_message": "hi", "label": "a", "model_id": "m"}
    with pytest.raises(SettingsError, match="`system_prompt`: the program has the components rules, style"):
        names.texts("Be brief.", ["rules", "style"])


@pytest.mark.parametrize("table", [{"message": "text"}, {"user_message": 5}, "text"])
def test_a_table_that_cannot_be_read_is_refused_by_its_name(table: Any) -> None:
    with pytest.raises(SettingsError, match=r"gepa\.toml: `rollouts"):
        ChatNames.of({"rollouts": table})


def test_a_row_with_a_field_of_the_message_or_the_model_is_refused() -> None:
    for context in ({"text": "x"}, {"model": "x"}):
        with pytest.raises(SettingsError, match=f"of t has the field {next(iter(context))}"):
            ChatNames.of({"rollouts": TABLE}).row({**MESSAGE, "context": context}, "m")
