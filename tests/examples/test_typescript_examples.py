"""TypeScript examples of one file get better, against a scripted model that follows the rules of its instructions."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from gepa_client.check.reflection_call import PROMPT
from gepa_client.cli.model_server import Conversation, ModelServer
from tests.support.forked_client import ForkServer
from tests.support.forked_commands import write_commands
from tests.support.installed import installed
from tests.support.pnpm_workspace import needs_npm_registry

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "typescript"
PACKAGE = ROOT / "clients" / "typescript"
REFLECTED = re.compile(r"with the following instructions[^\n]*:\n```\n(.*?)\n```\n\nThe following are", re.DOTALL)
EXPECTED = re.compile(r"Expected (\w+), not ")
RULE = "Compute the result, however long a response is."
ROWS = [json.loads(line) for line in (EXAMPLES / "data" / "banking.jsonl").read_text().splitlines()]
INTENTS = {row["text"]: row["label"] for row in ROWS}

pytestmark = [
    needs_npm_registry,
    pytest.mark.skipif(not (PACKAGE / "dist" / "index.js").is_file(), reason="the package has not been built"),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the examples, with their packages."""
    lock = (EXAMPLES / "package-lock.json").read_text()
    packages = installed("typescript-examples", lock, install) / "examples" / "typescript" / "node_modules"
    copy = tmp_path / "typescript"
    shutil.copytree(EXAMPLES, copy, ignore=shutil.ignore_patterns("node_modules"))
    (copy / "node_modules").symlink_to(packages)
    return copy


def install(folder: Path) -> None:
    """The packages of the examples, by npm; `clients` is where their lock has it."""
    place = folder / "examples" / "typescript"
    place.mkdir(parents=True)
    (folder / "clients").symlink_to(PACKAGE.parent)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(EXAMPLES / name, place)
    flags = ("--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", "--prefer-offline")
    subprocess.run(["npm", "ci", *flags], cwd=place, check=True, timeout=300)


def answer(conversation: Conversation) -> str:
    if conversation.last == PROMPT:
        return "ready"
    reflected = REFLECTED.search(conversation.last)
    if reflected is not None:
        rules = [f"{label}: what its name means" for label in EXPECTED.findall(conversation.last)]
        new = [rule for rule in dict.fromkeys(rules or [RULE]) if rule not in reflected[1]]
        return "\n".join(["```", reflected[1], *new, "```"])
    choose = intent if "bank" in conversation.instructions else better
    return json.dumps({"result": choose(conversation.instructions, conversation.last)})


def intent(instructions: str, message: str) -> str:
    """The intent of a message, if the instructions describe it."""
    label: str = INTENTS[message]
    return label if f"{label}: " in instructions else "cash_fee"


def better(instructions: str, message: str) -> str:
    """The longer response; if the instructions have the rule, that with the right number."""
    question, first, second = (part.partition(": ")[2] for part in message.split("\n\n"))
    if RULE not in instructions:
        return "A>B" if len(first) > len(second) else "B>A"
    left, sign, right = re.findall(r"\d+|[+-]", question)
    result = str(int(left) + int(right) * (1 if sign == "+" else -1))
    return "A>B" if result in re.findall(r"-?\d+", first) else "B>A"


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", ["banking77", "judge"])
def test_an_example_of_one_file_gets_better(folder: Path, fork_server: ForkServer, name: str) -> None:
    client = str(write_commands(fork_server, folder.parent))
    with ModelServer(answer).in_thread() as server:
        environment = {**os.environ, **server.variables, "GEPA_CLIENT": client, "LITELLM_LOCAL_MODEL_COST_MAP": "1"}
        command = ["npx", "tsx", f"{name}.ts"]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    before, after = re.match(r"(\S+) -> (\S+)\n", done.stdout).groups()  # type: ignore[union-attr]
    assert float(after) - float(before) >= 0.4, done.stdout + done.stderr


def test_the_examples_compile_strictly(folder: Path) -> None:
    done = subprocess.run(["npx", "tsc", "-p", "."], cwd=folder, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "")
