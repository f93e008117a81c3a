"""What the reflection model is asked when code is to be changed, and what it answered."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from gepa.strategies.instruction_proposal import InstructionProposalSignature

from gepa_client.evolution.template import LINEAGE, MARKS, OUTLINE, RECORDS

Prompt = str | list[dict[str, Any]]

MAX_VALUE = 4_000
"""Characters of a text in a record that are shown: what is wrong with code seldom needs a long input in full."""

_LOCATION = re.compile(r"\s*location:[ \t]*(?P<location>\S[^\n]*)\n(?P<request>.*)", re.IGNORECASE | re.DOTALL)


def code_prompt(template: str, outline: str, records: Sequence[Mapping[str, Any]], lineage: str) -> Prompt:
    """The template with its marks replaced; records as GEPA shows them, their long texts cut, their images attached.

    Raises:
        TypeError: the records are no list of objects.
    """
    shown = InstructionProposalSignature.prompt_renderer(
        {
            "current_instruction_doc": "",
            "dataset_with_feedback": [_shortened(record) for record in records],
            "prompt_template": "<curr_param><side_info>",
        }
    )
    text, images = (shown, []) if isinstance(shown, str) else (shown[0]["content"][0]["text"], shown[0]["content"][1:])
    given = {OUTLINE: outline, RECORDS: text, LINEAGE: lineage}
    prompt = re.sub("|".join(MARKS), lambda mark: given[mark[0]], template)  # at one go: texts may hold marks too
    return [{"role": "user", "content": [{"type": "text", "text": prompt}, *images]}] if images else prompt


def change_request(text: str) -> tuple[str, str | None]:
    """What the model wrote as its request and, apart from it, where it says the change belongs."""
    found = _LOCATION.fullmatch(text)
    if found is None or not found["request"].strip():
        return text.strip(), None
    return found["request"].strip(), found["location"].strip()


def _shortened(value: Any) -> Any:
    """The value with each text in it cut in its middle, as both ends of an input or a traceback may matter."""
    if isinstance(value, str) and len(value) > MAX_VALUE:
        half = MAX_VALUE // 2
        return f"{value[:half]}\n... ({len(value) - MAX_VALUE} more characters) ...\n{value[-half:]}"
    if isinstance(value, Mapping):
        return {key: _shortened(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_shortened(part) for part in value]
    return value
