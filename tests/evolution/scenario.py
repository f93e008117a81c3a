"""What a reflection model asks for and an agent then does, in the order that a run of the repeats example takes.

The reflection model names the first change whose title is not yet in the lineage it was shown; the agent follows the
script that has the title. Both depend on the request alone, so that an interrupted run continues as it would have.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from tests.gepa_client.scripted_server import chat_completion
from tests.support.rounds import ALL

Turn = Sequence[dict[str, Any] | str]
Edit = tuple[str, str, str]
"""A file, what is in it, and what is to be there instead."""


@dataclass(frozen=True)
class Change:
    """One change: what is asked for, the edits that the agent makes, and the stage it is refused at, if it is.

    `tested`: whether the agent runs the tests before it is done.
    """

    title: str
    edits: tuple[Edit, ...] = ()
    stage: str | None = None
    tested: bool = True


EMPTY = "Add a way out for empty texts"
DESCRIBE = "Describe what the function is for"
TESTS_TOO = "Expect other answers"
AT_ONCE = "Answer at once"
AT_IMPORT = "Prepare at import"
COMPARE = "Compare words as they are without case and punctuation"
REMEMBER = "Remember the words that were seen"

PY, PY_TEST = "repeats.py", "test_repeats.py"
WORDS = "    words = text.split()\n"
LOOP = "    for at, word in enumerate(words):\n        before = [plain(other) for other in words[:at]]\n"
RAW = "        if word in before and word not in ignored.split():\n"
PLAIN = "        if plain(word) in before and plain(word) not in ignored.split():\n"
PYTHON = (
    Change(EMPTY, ((PY, WORDS, WORDS.replace(")", "")),), "start", tested=False),
    Change(DESCRIBE, (), "empty", tested=False),
    Change(TESTS_TOO, ((PY_TEST, '"two")', '"one")'),), "paths", tested=False),
    Change(AT_ONCE, ((PY, WORDS, "    return text\n" + WORDS),), "check", tested=False),
    Change(AT_IMPORT, ((PY, "def run(", "import time\n\ntime.sleep(60)\n\n\ndef run("),), "start", tested=False),
    Change(COMPARE, ((PY, RAW, PLAIN),)),
    Change(
        REMEMBER,
        (
            (PY, LOOP, "    before = set()\n    for word in map(plain, words):\n"),
            (PY, PLAIN, RAW),
            (PY, "            return plain(word)\n", "            return word\n        before.add(word)\n"),
        ),
    ),
)

TS, TS_TEST = "repeats.ts", "repeats.test.ts"
TS_WORDS = '  const words = text.split(/\\s+/).filter((word) => word !== "");\n'
TS_LOOP = "  for (const [at, word] of words.entries()) {\n    const before = words.slice(0, at).map(plain);\n"
TS_SET = "  const before = new Set<string>();\n  for (const word of words.map(plain)) {\n"
TS_RAW = '    if (before.includes(word) && !ignored.split(" ").includes(word)) return plain(word);\n'
TS_PLAIN = TS_RAW.replace("(word) &&", "(plain(word)) &&").replace("includes(word))", "includes(plain(word)))")
TS_SEEN = '    if (before.has(word) && !ignored.split(" ").includes(word)) return word;\n    before.add(word);\n'
TYPESCRIPT = (
    Change(EMPTY, ((TS, TS_WORDS, TS_WORDS + "  if (\n"),), "build", tested=False),
    Change(DESCRIBE, (), "empty", tested=False),
    Change(TESTS_TOO, ((TS_TEST, '"two")', '"one")'),), "paths", tested=False),
    Change(AT_ONCE, ((TS, TS_WORDS, "  if (text) return text;\n" + TS_WORDS),), "check", tested=False),
    Change(
        AT_IMPORT,
        ((TS, "/** The first", "Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);\n\n/** The first"),),
        "start",
        tested=False,
    ),
    Change(COMPARE, ((TS, TS_RAW, TS_PLAIN),)),
    Change(REMEMBER, ((TS, TS_LOOP, TS_SET), (TS, TS_PLAIN, TS_SEEN))),
)

CHANGES = {
    "python": PYTHON if ALL else tuple(change for change in PYTHON if change.stage in ("check", None)),
    "typescript": TYPESCRIPT,
}
TESTS = {"python": "python -m unittest -q", "typescript": "npm run --silent build && node --test dist/"}


def scripts_of(planned: Sequence[Change], tests: str) -> list[dict[str, Any]]:
    """The agent's scripts, as `tests/support/scripted_anthropic.py` reads them; `tests`: the command that it runs.

    Later ones first: the prompt holds the earlier ones too, as history.
    """
    return [_script(change, tests) for change in reversed(planned)]


def _script(change: Change, tests: str) -> dict[str, Any]:
    files = list(dict.fromkeys(name for name, _, _ in change.edits)) or ["AGENTS.md"]
    turns: list[Turn] = [["I look first.", *(use("Read", file_path=f"{{folder}}/{name}") for name in files)]]
    for name, old, new in change.edits:
        turns.append([use("Edit", file_path=f"{{folder}}/{name}", old_string=old, new_string=new)])
    if change.tested:
        turns.append([use("Bash", command=f"{tests} 2>&1 | tail -5", description="Run the tests")])
    turns.append([f"Done: {change.title}."])
    return {"when": change.title, "turns": turns}


def use(tool: str, **arguments: Any) -> dict[str, Any]:
    """A use of a tool in a script."""
    return {"tool": tool, "input": arguments}


class Reflection:
    """A reflection model: `complete` answers OpenAI's chat completions. `prompts`: what it was shown, oldest first."""

    def __init__(self, planned: Sequence[Change]) -> None:
        self._changes = planned
        self.prompts: list[str] = []

    async def complete(self, request: web.Request) -> web.Response:
        """Name the change that is `chosen`."""
        body = await request.json()
        prompt = "".join(str(message["content"]) for message in body["messages"])
        self.prompts.append(prompt)
        return chat_completion(body["model"], f"I would try this:\n```\n{self.chosen(prompt).title}\n```")

    def chosen(self, prompt: str) -> Change:
        """The first change that the lineage in the prompt does not have."""
        return next((change for change in self._changes if change.title not in prompt), self._changes[-1])
