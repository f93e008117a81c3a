"""Against a loopback server that speaks the part of OpenAI's interface litellm uses; in processes of its own."""

import importlib.util
import json
import os
import textwrap
import time
from collections import Counter, deque
from pathlib import Path
from types import SimpleNamespace

import orjson
import pytest
from aiohttp import web

from gepa_client.gepa.litellm_model import missing_key
from tests.gepa_client.scripted_server import chat_completion


class ModelServer:
    """Answers with the last message in capitals, or the next status of `refusals`; a model may be named for one."""

    def __init__(self, fork_server):
        self.fork_server = fork_server
        self.refusals = deque()
        self.retry_after = deque()  # of the next refusals
        self.requests = []
        self.arrivals = []
        self.url = ""

    async def handle(self, request):
        asked = orjson.loads(await request.read())
        self.requests.append(asked)
        self.arrivals.append(time.monotonic())
        status = int(asked["model"][-3:]) if asked["model"].startswith("refuse-") else 200
        if self.refusals:
            status = self.refusals.popleft()
        if status != 200:
            return web.json_response(
                {"error": {"message": "not now", "type": "x", "code": None}},
                status=status,
                headers={"Retry-After": self.retry_after.popleft()} if self.retry_after else None,
            )
        text = asked["messages"][-1]["content"].upper()
        return chat_completion(asked["model"], text)


@pytest.fixture
def model_server(host, fork_server):
    made = ModelServer(fork_server)
    made.url = host.serve(made.handle, "/v1/chat/completions").removesuffix("/chat/completions")
    return made


def run(model_server, code):
    """Run code that has `model(name)` in another interpreter; its last line of output is JSON."""
    setting = f"""
        import json, logging, os, sys
        from gepa_client import LiteLLMModel
        logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
        def model(name, **options):
            return LiteLLMModel(name, api_base={model_server.url!r}, api_key="x", pause_s=0.01, **options)
        def cost(answer):
            return [answer.cost_usd, answer.input_tokens, answer.output_tokens]
    """
    clean = {name: value for name, value in os.environ.items() if name != "LITELLM_LOCAL_MODEL_COST_MAP"}
    script = textwrap.dedent(setting) + textwrap.dedent(code)
    status, stdout, stderr = model_server.fork_server.run_script(script, folder=Path.cwd(), environment=clean)
    assert status == 0, stderr.decode()
    return json.loads(stdout), stderr.decode()


def test_it_retries_what_may_pass_raises_what_is_permanent_and_states_what_answers_cost(model_server):
    model_server.refusals += [429, 500, 503]
    found, _ = run(
        model_server,
        """
        lm = model("openai/gpt-4o-mini", temperature=0.5)
        prompt = lm("hello")
        messages = lm([{"role": "system", "content": "x"}, {"role": "user", "content": "there"}])
        unpriced = model("openai/no-such-model-at-all")
        from evolverpc_common.model_prices import PriceTable
        given = model("openai/mine", prices=PriceTable({"mine": (1_000_000, 2_000_000)}, table={}))
        costs = [cost(each) for each in (lm.complete("z"), unpriced.complete("x"), given.complete("y"))]
        errors = []
        for name, attempts in (("openai/refuse-401", 5), ("openai/refuse-500", 3)):
            try:
                model(name, max_attempts=attempts)("hello")
            except Exception as error:
                errors.append(type(error).__name__)
        local_map = os.environ["LITELLM_LOCAL_MODEL_COST_MAP"]
        print(json.dumps([prompt, messages, lm.total_cost, costs, errors, local_map]))
        """,
    )
    prompt, messages, total, ((cost, *tokens), *others), errors, local_map = found
    assert (prompt, messages) == ("HELLO", "THERE")
    assert cost > 0
    assert total > 2 * cost
    assert tokens == [5, 5]
    assert others == [[None, 5, 5], [5 * 1 + 5 * 2, 5, 5]]
    assert errors == ["AuthenticationError", "InternalServerError"]
    assert local_map == "True"
    assert model_server.requests[0]["temperature"] == 0.5
    asked = Counter(request["model"] for request in model_server.requests)  # litellm repeats no request by itself
    assert asked == {"gpt-4o-mini": 3 + 3, "no-such-model-at-all": 1, "mine": 1, "refuse-401": 1, "refuse-500": 3}


def test_a_model_that_is_not_there_is_reported_in_one_line_with_its_address_and_setting(model_server):
    found, _ = run(
        model_server,
        """
        from gepa_client.errors import ConnectionLost, details
        errors = []
        for name in ("openai/gpt-4o-mini", "anthropic/claude-sonnet-4-5"):
            try:
                LiteLLMModel(name, api_base="http://127.0.0.1:1/v1", api_key="x", pause_s=0.01, max_attempts=2)("hello")
            except ConnectionLost as error:
                errors.append([str(error), details(error)])
        print(json.dumps(errors))
        """,
    )
    advice = "if that is not its address, set `api_base` in `reflection_lm_kwargs`"
    for (message, details), name in zip(found, ["openai/gpt-4o-mini", "anthropic/claude-sonnet-4-5"], strict=True):
        assert message.startswith(f"the model {name} does not answer at http://127.0.0.1:1/v1/")
        assert message.endswith(f"Connection refused; {advice}")
        assert details == ""


def test_a_key_may_stand_in_a_file_from_which_litellm_sets_variables(monkeypatch, tmp_path):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    installed = SimpleNamespace(origin=str(tmp_path / ".venv" / "litellm" / "__init__.py"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: installed)
    assert missing_key("openai/gpt-5", {}).startswith("openai/gpt-5 needs a key: set OPENAI_API_KEY")
    (tmp_path / ".env").touch()
    assert missing_key("openai/gpt-5", {}) is None, "only litellm knows"


def test_a_short_retry_after_does_not_shorten_the_growing_pauses(model_server):
    model_server.retry_after += ["0.01"] * 3
    model_server.refusals += [429] * 3
    found, _ = run(
        model_server,
        """
        lm = model("openai/gpt-4o-mini")
        lm.pause_s = 0.2
        print(json.dumps(lm("hello")))
        """,
    )
    assert found == "HELLO"
    first, *_, last = model_server.arrivals
    assert last - first >= (0.2 + 0.4 + 0.8) * 0.75


def test_a_long_retry_after_is_bounded(model_server):
    model_server.retry_after += ["3600"]
    model_server.refusals += [429]
    found, _ = run(
        model_server,
        """
        from gepa_client.gepa import litellm_model
        litellm_model.LONGEST_PAUSE_S = 0.1
        print(json.dumps(model("openai/gpt-4o-mini")("hello")))
        """,
    )
    assert found == "HELLO"


def test_requests_of_all_threads_are_spaced_repeated_ones_count_and_one_waits_for_its_retry_after(model_server):
    model_server.retry_after += ["1"]
    model_server.refusals += [429, 200, 429, 500]
    found, _ = run(
        model_server,
        """
        import time
        from concurrent.futures import ThreadPoolExecutor
        first = model("openai/gpt-4o-mini")("hello")
        lm = model("openai/gpt-4o-mini", per_minute=300)
        began = time.monotonic()
        with ThreadPoolExecutor(4) as threads:
            texts = list(threads.map(lm, ["a", "b", "c", "d"]))
        print(json.dumps([first, texts, time.monotonic() - began]))
        """,
    )
    first, texts, took = found
    assert first == "HELLO"
    refused, answered, *spaced = model_server.arrivals
    assert answered - refused >= 1.0
    assert texts == ["A", "B", "C", "D"]
    assert len(spaced) == 6
    assert took >= 5 * 60 / 300
