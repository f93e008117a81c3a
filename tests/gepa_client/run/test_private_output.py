"""Secrets are kept out of reasons, events and the results folder."""

import os
from pathlib import Path

from evolverpc_common.redaction import Secrets
from gepa_client.journal.run_events import Event, Finished, ProposalMade, StepFailed
from gepa_client.run.event_writer import redacting
from gepa_client.run.resolved_settings import known_secrets
from gepa_client.settings.run_config import RunConfig


def test_every_text_of_an_event_is_free_of_secrets_and_its_figures_stay() -> None:
    events: list[Event] = []
    emit = redacting(Secrets(["12345678x"]), events.append)
    emit(StepFailed(iteration=3, step="a", message="key 12345678x", details="12345678x"))
    emit(ProposalMade(iteration=3, proposal=1, texts={"a": "key 12345678x"}))
    emit(Finished(status="failed", reason="12345678x", metric_calls=12345678, files=["12345678x"], seconds=1.5))
    assert events == [
        StepFailed(iteration=3, step="a", message="key [redacted]", details="[redacted]"),
        ProposalMade(iteration=3, proposal=1, texts={"a": "key [redacted]"}),
        Finished(status="failed", reason="[redacted]", metric_calls=12345678, files=["[redacted]"], seconds=1.5),
    ]


def test_the_tokens_of_files_and_the_password_of_a_store_are_known(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("  the-token-itself \n")
    config = RunConfig(url=("http://127.0.0.1:1",), token_file=tmp_path / "token")
    found = known_secrets(config, "mongodb+srv://me:p%40ssword9@host/database")
    assert {"the-token-itself", "p%40ssword9", "p@ssword9"} <= set(found)
    assert known_secrets(config, "runs/a:b@c.db")[-1] == "the-token-itself"
    (tmp_path / "proxy").write_text("the-token-of-the-proxy")
    (tmp_path / "fleet").write_text("http://127.0.0.1:1 token-file=token proxy-token-file=proxy")
    found = known_secrets(RunConfig(fleet=tmp_path / "fleet"), "runs/x.db")
    assert {"the-token-itself", "the-token-of-the-proxy"} <= set(found)
    config = RunConfig(repo=".", secret_headers=("api.example.com X-Word=PATH",))
    assert os.environ["PATH"] in known_secrets(config, "runs/x.db")
