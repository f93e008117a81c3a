"""What the reflection model is asked when code is to be changed, and what it answered."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

Prompt = str | list[dict[str, Any]]

MAX_VALUE = 4_000
"""Characters of a text in a record that are shown: what is wrong with code seldom needs a long input in full."""

_LOCATION = re.compile(r"\s*location:[ \t]*(?P<location>\S[^\n]*)\n(?P<request>.*)", re.IGNORECASE | re.DOTALL)


def code_prompt(template: str, outline: str, records: Sequence[Mapping[str, Any]], lineage: str) -> Prompt:
    """Return the template with its marks replaced; records as GEPA shows them, long texts cut, images attached.

    Raises:
        TypeError: the records are no list of objects.
    """
    from gepa.strategies.instruction_proposal import InstructionProposalSignature  # heavy; settings import this module

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
    """Return the request that the model wrote and, separately, the location it named for the change."""
    found = _LOCATION.fullmatch(text)
    if found is None or not found["request"].strip():
        return text.strip(), None
    return found["request"].strip(), found["location"].strip()


def _shortened(value: Any) -> Any:
    """Return the value with each text in it cut in its middle, as both ends of a text may matter."""
    if isinstance(value, str) and len(value) > MAX_VALUE:
        half = MAX_VALUE // 2
        return f"{value[:half]}\n... ({len(value) - MAX_VALUE} more characters) ...\n{value[-half:]}"
    if isinstance(value, Mapping):
        return {key: _shortened(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_shortened(part) for part in value]
    return value


OUTLINE, RECORDS, LINEAGE = "<outline>", "<side_info>", "<lineage>"
MARKS = (OUTLINE, RECORDS, LINEAGE)

DEFAULT_TEMPLATE = f"""You improve a program by having its code changed. An overview of the program's code:
```
{OUTLINE}
```

Examples of inputs that the program was given, what it did with each of them, and feedback on how that could be better:
```
{RECORDS}
```

Changes that were asked for earlier, and what came of each:
```
{LINEAGE}
```

Find out what most often goes wrong in these examples, and which single change of the program's code would help with \
inputs of this kind in general, not only with these. It may change how the program works: its steps, what it asks a \
model and how often, the tools and checks it uses, how it reads inputs and writes outputs. It may add texts that are \
tuned later, such as prompts for new steps. Do not repeat a change that was rejected or was not better, unless you \
know what to do otherwise. Never have the program contain answers to these examples, and leave alone how it is scored.

Write one change request for a programmer who sees the code, but not your reasoning: what to change and why, precise \
enough to be carried out, in a few paragraphs and without writing the code yourself. If you know where the change \
belongs, begin with a line such as `Location: path/to/file, name of the function`.

Provide the change request within ``` blocks."""
