"""The stand-in, the agent and the wrapper that the pages show work unchanged, with nothing paid for."""

import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from evolverpc_common.network_addresses import free_port
from gepa_client import RemoteAdapter
from tests.docs import pages
from tests.sandbox_runtime.source.repositories import commit
from tests.support.forked_client import ForkServer
from tests.support.waiting import until

WORDS = [
    {"text": "a,b", "words": ["a", "b"]},
    {"text": "a, b , c", "words": ["a", "b", "c"]},
    {"text": "c ,d", "words": ["c", "d"]},
]
ROWS = [{"text": "Refund me", "label": "billing"}, {"text": "It crashes", "label": "other"}]
PROGRAM = """
seed_candidate = {"prompt": "Name the team."}

def run(example, candidate):
    return next((team for team in ("billing", "other") if f"expected {team}" in candidate["prompt"]), "other")
"""
SCORE = """
def score(example, output):
    return (1, "right") if output == example["label"] else (0, f"expected {example['label']}, got {output}")
"""
CLASSIFY = 'open(F, "rules.txt"); $_ = <STDIN>; while ($rule = <F>) { print "billing\\n" if $rule =~ /refund/ && /Re/ }'
ASYNC_CLIENT = """
from types import SimpleNamespace as Some

class AsyncOpenAI:
    def __init__(self):
        self.chat = Some(completions=self)
    async def create(self, *, model, messages):
        return Some(choices=[Some(message=Some(content=f" {messages[0]['content']}\\n"))])
"""


def lines_of(rows: Sequence[Mapping[str, object]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


@contextmanager
def stand_in() -> Iterator[dict[str, str]]:
    """Run the page's stand-in on a free port; yield the variables that the page exports."""
    port = free_port()

    def answers() -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 5):
            return True
        return False

    program = pages.block("docs/quickstart.md", "# stand_in.py").text.replace("8200", str(port))
    with subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.DEVNULL) as model:
        try:
            until(answers)
            yield {"OPENAI_BASE_URL": f"http://127.0.0.1:{port}/v1", "OPENAI_API_KEY": "any"}
        finally:
            model.kill()


def run(fork_server: ForkServer, folder: Path, environment: dict[str, str], command: str) -> str:
    """Run `evolverpc COMMAND`, which must succeed; return its output."""
    environment = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True", **environment}
    status, stdout, stderr = fork_server.run(shlex.split(command), folder=folder, environment=environment)
    assert status == 0, (stdout + stderr).decode()
    return stdout.decode()


def test_the_stand_in_of_the_quick_start_answers_the_check_and_improves_a_text(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    (tmp_path / "program.py").write_text(PROGRAM + SCORE)
    (tmp_path / "rows.jsonl").write_text(lines_of([ROWS[0], ROWS[0], ROWS[0], ROWS[1]]))
    with stand_in() as variables, fork_server.running_server("--program", "program.py", cwd=tmp_path) as endpoint:
        environment = {**variables, "GEPA_TOKEN": endpoint.token}
        given = f"{endpoint.url} --trainset rows.jsonl --reflection-lm openai/mine"
        assert "openai/mine, which answered" in run(fork_server, tmp_path, environment, f"check {given}")
        run(fork_server, tmp_path, environment, f"optimize {given} --max-metric-calls 30 --output run")
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert (result["seed_score"], result["best_score"]) == (0.25, 0.75)


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed: apt install bubblewrap")
def test_the_agent_of_the_guide_changes_code_on_request_and_in_a_run_with_the_stand_in(
    tmp_path: Path, fork_server: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = "docs/guides/evolve-code.md"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "agent.py").write_text(pages.block(page, "# agent.py").text)
    folder = tmp_path / "program"
    commit(folder, {"program.py": pages.block(page, "# program.py").text, "rows.jsonl": lines_of(WORDS)})
    [line] = pages.block(page, "evolverpc serve program.py --port 8000 --token-file token --allow").commands()
    serve = shlex.split(
        line.replace("--port 8000 --token-file token", "").replace(" program.py", " --program program.py")
    )
    with stand_in() as variables, fork_server.running_server(*serve[2:], cwd=folder) as endpoint:
        environment = {**variables, "GEPA_TOKEN": endpoint.token}
        shown = run(fork_server, folder, environment, f"mutate {endpoint.url} 'Accept blanks' --examples rows.jsonl")
        assert "score 0.3333 -> 1," in shown
        given = f"{endpoint.url} --trainset rows.jsonl --reflection-lm openai/mine --evolve code"
        run(fork_server, folder, environment, f"optimize {given} --max-metric-calls 20 --output {tmp_path / 'run'}")
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert (result["seed_score"], result["best_score"]) == (pytest.approx(1 / 3), 1.0)


def test_the_wrapper_gives_a_plain_command_its_texts_and_the_line_of_perl_writes_the_best_back(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    page = "docs/guides/other-languages.md"
    for name, text in {
        "wrapper.py": pages.block(page, "# wrapper.py").text,
        "classify.pl": CLASSIFY,
        "rules.txt": "parcel\n",
        "best_candidate.json": '{"rules": "refund \\u00e9\\n"}',
    }.items():
        (tmp_path / name).write_text(text)
    with (
        fork_server.running_server("--program", "wrapper.py", cwd=tmp_path) as endpoint,
        RemoteAdapter(endpoint.url, token=endpoint.token) as adapter,
    ):
        assert adapter.seed_candidate == {"rules": "parcel\n"}
        assert adapter.evaluate(ROWS[:1], adapter.seed_candidate).outputs == [""]
        assert adapter.evaluate(ROWS[:1], {"rules": "refund"}).outputs == ["billing"]
    [line] = pages.block(page, "perl -CO").commands()
    subprocess.run(["sh", "-c", line], cwd=tmp_path, check=True)
    assert (tmp_path / "rules.txt").read_text(encoding="utf-8") == "refund é\n"


def test_async_functions_of_the_guide_report_their_steps(tmp_path: Path, fork_server: ForkServer) -> None:
    program = pages.block("docs/guides/python.md", "# async_routes.py").text
    (tmp_path / "async_routes.py").write_text(f'{program}\nseed_candidate = {{"route": "Billing"}}\n{SCORE}')
    (tmp_path / "openai.py").write_text(ASYNC_CLIENT)
    serve = ("--program", "async_routes.py", "--python", sys.executable)
    with (
        fork_server.running_server(*serve, cwd=tmp_path) as endpoint,
        RemoteAdapter(endpoint.url, token=endpoint.token) as adapter,
    ):
        traced = adapter.evaluate(ROWS[:1], adapter.seed_candidate, capture_traces=True)
        records = adapter.make_reflective_dataset(adapter.seed_candidate, traced, ["route"])
    [record] = records["route"]
    assert (record["Inputs"], record["Generated Outputs"]) == ({"text": "Refund me"}, "billing")
