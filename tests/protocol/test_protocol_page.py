"""`docs/protocol.md` is complete, and its conversation is real."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest

from protocol import CAPABILITIES, METHODS, ExampleResult, Limits, Meta, Status, Usage
from protocol.errors import ALL
from sandbox_runtime import running_server

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/protocol.md").read_text(encoding="utf-8")
PROSE = re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL)
HEADINGS = re.findall(r"^#+ (.+)$", PROSE, re.MULTILINE)


def section(name: str) -> str:
    return PAGE.split(f"\n## {name}\n", 1)[1].split("\n## ", 1)[0]


def test_every_method_capability_status_and_field_of_a_result_is_on_the_page() -> None:
    assert set(CAPABILITIES) <= set(HEADINGS)
    fields = [name for kind in (Limits, Meta, ExampleResult, Usage) for name in kind.model_fields]
    for name in (*METHODS, *get_args(Status), *fields):
        assert re.search(rf"`[^`\n]*\b{re.escape(name)}\b[^`\n]*`", PROSE), name


def test_the_table_of_errors_is_the_tree_of_errors() -> None:
    rows = re.findall(r"^\| (-32\d+) \| (\w+) \| (.+?) \|", section("Errors"), re.MULTILINE)
    assert [(int(code), name) for code, name, _ in rows] == [(kind.code, kind.__name__) for kind in ALL]
    retryable = {name for _, name, means in rows if means.endswith("retryable")}
    assert retryable == {kind.__name__ for kind in ALL if kind.default_retryable}


def alike(shown: Any, real: Any) -> bool:
    """`…` on the page stands for text that differs from run to run."""
    if shown == "…":
        return True
    if isinstance(shown, dict) and isinstance(real, dict):
        return shown.keys() == real.keys() and all(alike(shown[key], real[key]) for key in shown)
    if isinstance(shown, list) and isinstance(real, list):
        return len(shown) == len(real) and all(map(alike, shown, real))
    return type(shown) is type(real) and bool(shown == real)


@pytest.mark.skipif(shutil.which("curl") is None or shutil.which("bash") is None, reason="needs curl and bash")
def test_the_conversation_is_what_a_server_answers() -> None:
    talk = section("A conversation")
    steps = re.findall(r"^```(sh|json)\n(.*?)^```$", talk, re.MULTILINE | re.DOTALL)
    function = next(text for _, text in steps if text.startswith("rpc()"))
    asked = [(text, steps[at + 1][1]) for at, (kind, text) in enumerate(steps[:-1]) if steps[at + 1][0] == "json"]
    assert len(asked) == 3
    command = [str(Path(sys.executable).with_name("gepa-server")), "--conformance", "--json"]
    with running_server(command) as server:
        for script, answer in asked:
            text = f"{function}\n{script}".replace("http://127.0.0.1:8000/rpc", server.url)
            environment = {**os.environ, "GEPA_TOKEN": server.token}
            done = subprocess.run(["bash", "-c", text], env=environment, capture_output=True, check=True, timeout=30)
            assert alike(json.loads(answer), json.loads(done.stdout)), done.stdout
