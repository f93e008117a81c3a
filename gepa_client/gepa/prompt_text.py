"""Prompts of reflection: a template with its marks replaced, records as GEPA shows them, images attached."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from gepa.strategies.instruction_proposal import InstructionProposalSignature

Prompt = str | list[dict[str, Any]]

TEXT, RECORDS = "<curr_param>", "<side_info>"
"""GEPA's marks of the present text and of the records."""


def filled(template: str, records: Sequence[Mapping[str, Any]], given: Mapping[str, str]) -> Prompt:
    """Return the template with the records and other texts in place of their marks; chat messages if it has images.

    `given`: texts by their marks. All marks are replaced in one pass, as texts may hold marks too.

    Raises:
        TypeError: the records are no list of objects.
    """
    shown = InstructionProposalSignature.prompt_renderer(
        {"current_instruction_doc": "", "dataset_with_feedback": records, "prompt_template": TEXT + RECORDS}
    )
    text, images = (shown, []) if isinstance(shown, str) else (shown[0]["content"][0]["text"], shown[0]["content"][1:])
    texts = {**given, RECORDS: text}
    prompt = re.sub("|".join(map(re.escape, texts)), lambda mark: texts[mark[0]], template)
    return [{"role": "user", "content": [{"type": "text", "text": prompt}, *images]}] if images else prompt
