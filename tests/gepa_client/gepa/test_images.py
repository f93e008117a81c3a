"""`gepa.Image` in the records of a served program: to the reflection model, to a program that proposes, to a replay."""

import base64
import json
from pathlib import Path

import gepa
import pytest
from gepa.image import Image

from gepa_client import ConcurrentReflection, RemoteAdapter
from rpc_server.worker.json_values import NotJsonError
from rpc_server.worker.record_images import MAX_BYTES, dataset_members
from tests.gepa_client.journal.stored_journals import recording, replaying, watched

SERVED = Path(__file__).parent / "served"
SEED = {"rules": "draw"}


class Model:
    """Keeps the prompts it gets."""

    def __init__(self):
        self.prompts = []

    def __call__(self, prompt):
        self.prompts.append(prompt)
        return f"```\ndraw with care, attempt {len(self.prompts)}\n```"


@pytest.fixture(scope="module")
def drawing(gepa_server):
    """The address of a server of the adapter that shows images."""
    with gepa_server(SERVED, "--adapter", "drawing_adapter:Adapter", "--seed-candidate", json.dumps(SEED)) as url:
        yield url


def optimize(adapter, **options):
    result = gepa.optimize(dict(SEED), ["a", "b", "c", "d"], adapter=adapter, max_metric_calls=30, **options)
    return result.candidates, result.val_subscores


def records_of(adapter):
    batch = adapter.evaluate(["a", "b"], SEED, capture_traces=True)
    return adapter.make_reflective_dataset(SEED, batch, ["rules"])


def test_a_reflection_model_sees_what_it_sees_in_one_process(drawing, monkeypatch):
    monkeypatch.syspath_prepend(str(SERVED))
    from drawing_adapter import Adapter

    local, remote, ours = Model(), Model(), Model()
    in_one_process = optimize(Adapter(), reflection_lm=local)
    with RemoteAdapter(drawing) as adapter:
        assert optimize(adapter, reflection_lm=remote) == in_one_process
        assert optimize(adapter, reflection_strategy=ConcurrentReflection(ours)) == in_one_process
        blind = Model()
        optimize(adapter, reflection_strategy=ConcurrentReflection(blind, shows_images=False))
    assert local.prompts == remote.prompts == ours.prompts
    assert isinstance(blind.prompts[0], str)
    assert "(image/png, 14 bytes)" in blind.prompts[0]
    [message] = local.prompts[0]
    assert [part["type"] for part in message["content"]] == ["text", "image_url", "image_url", "image_url"]


def test_a_program_that_proposes_gets_the_data_urls_of_its_steps_back(gepa_server):
    with gepa_server(SERVED, "--program", "describing") as url, RemoteAdapter(url) as adapter:
        assert not adapter.offers("images")
        batch = adapter.evaluate(["a"], SEED, capture_traces=True)
        records = adapter.make_reflective_dataset(SEED, batch, ["rules"])
        [photo] = [record["Inputs"]["photo"] for record in records["rules"]]
        assert photo.media_type == "image/png"  # a model that sees gets it so
        texts = adapter.propose_new_texts(SEED, records, ["rules"])
    content = base64.b64encode(b"\x89PNG a drawing").decode()
    history = '```json\n  0: {"role":"user","content":"a"}\n```'
    assert texts == {"rules": f"data:image/png;base64,{content} {history}"}


def test_what_cannot_be_carried_is_refused_with_its_place(tmp_path):
    (tmp_path / "large.png").write_bytes(b"x" * (MAX_BYTES + 1))
    refused = [
        (Image(url="https://example.com/drawing.png"), "is an image at a URL"),
        (Image(path=str(tmp_path / "large.png")), "is an image of more than 5242880 bytes"),
        (Image(path=str(tmp_path / "missing.png")), "is an image that cannot be read"),
    ]
    for image, reason in refused:
        with pytest.raises(NotJsonError, match=r"dataset\.rules\[0\]\.shown\[0\] " + reason):
            dataset_members({"rules": [{"shown": [image]}]})


def test_images_are_recorded_and_a_replay_shows_them_again(drawing, tmp_path):
    with watched(tmp_path) as store:
        secret = base64.b64encode(b"\x89PNG a drawing").decode()[:12]
        with recording(store, secrets=[secret]) as journal, RemoteAdapter(drawing, journal=journal) as adapter:
            live = records_of(adapter)
            discovery = adapter.discovery
        with RemoteAdapter(journal=replaying(store), recorded=discovery) as adapter:
            assert records_of(adapter) == live
    assert live["rules"][0]["Drawing"]["shown"][0].base64_data.startswith(secret)
