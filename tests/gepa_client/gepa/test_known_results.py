"""Results of a deterministic program are reused: nothing is evaluated twice, and a replay reuses the same."""

import itertools

import orjson

from gepa_client import RemoteAdapter, Row
from gepa_client.gepa.known_results import KnownResults
from gepa_client.journal.entries import REUSE, SEARCH
from tests.gepa_client.journal.sample_runs import RUN
from tests.gepa_client.journal.stored_journals import recording

SEED = {"system": "s", "style": "t"}
OTHER = {"system": "other", "style": "t"}


def rows(*numbers):
    return [Row(str(number), {"n": number}) for number in numbers]


def recorded(server, store, work):
    with recording(store) as journal, RemoteAdapter(server.url, journal=journal) as adapter:
        adapter.known = KnownResults(journal)
        return work(adapter), adapter.known.reused


def evaluated(server):
    return [
        (params["candidate"]["system"], example["id"])
        for params in server.called("evaluate")
        for example in params["batch"]
    ]


def test_a_row_is_evaluated_once_with_a_candidate_whichever_minibatch_it_is_in(server, store):
    server.evaluate_one = lambda _candidate, example, _traced: server.ok(
        example.data["n"] / 8, output=example.data, metric_calls=2
    )
    same_id = Row("1", {"n": 4})

    def work(adapter):
        return [
            adapter.batch_evaluate([(SEED, rows(1, 2, 2)), (OTHER, rows(1))], capture_traces=True),
            adapter.batch_evaluate([(SEED, rows(3, 2))], capture_traces=True),
            adapter.batch_evaluate(
                [(OTHER, [*rows(1), same_id]), (SEED, rows(3, 1, 2)), (OTHER, [same_id])], capture_traces=False
            ),
        ]

    batches, reused = recorded(server, store, work)
    assert sorted(evaluated(server)) == [("other", "1"), ("other", "1"), ("s", "1"), ("s", "2"), ("s", "3")]
    assert [[batch.num_metric_calls for batch in batch_of] for batch_of in batches] == [[4, 2], [2], [2, 0, 0]]
    assert [[batch.scores for batch in batch_of] for batch_of in batches] == [
        [[1 / 8, 2 / 8, 2 / 8], [1 / 8]],
        [[3 / 8, 2 / 8]],
        [[1 / 8, 4 / 8], [3 / 8, 1 / 8, 2 / 8], [4 / 8]],
    ]
    assert [one.result["output"] for one in batches[1][0].trajectories] == [{"n": 3}, {"n": 2}]
    assert reused == 1 + 1 + 5
    listed = [orjson.loads(entry.answer) for entry in store.entries(RUN.id, SEARCH) if entry.kind == REUSE]
    assert listed == [[[0, 1, 1], [2]], [[4, 1]], [[2, 6], [4, 0, 1], [6]]]


def test_only_results_of_one_server_serve_a_minibatch_with_traces_and_noise_is_warned_of_once(server, store):
    scores, warned = itertools.count(), []
    server.evaluate_one = lambda *_: server.ok(next(scores) / 8)

    def work(adapter):
        adapter.known.warn = warned.append
        adapter.batch_evaluate([(SEED, rows(1))], capture_traces=True)
        server.forget("second")
        for asked in (rows(2), rows(2, 1), rows(2, 1)):
            adapter.batch_evaluate([(SEED, asked)], capture_traces=True)
        adapter.batch_evaluate([(OTHER, rows(1, 2))], capture_traces=False)
        adapter.batch_evaluate([(OTHER, rows(1, 2))], capture_traces=True)

    recorded(server, store, work)
    assert len(evaluated(server)) == 7
    assert len(warned) == 1


def test_failed_examples_are_evaluated_again(server, store):
    server.evaluate_one = lambda _candidate, _example, _traced: server.failed()
    _, reused = recorded(server, store, lambda adapter: [adapter.evaluate(rows(1), SEED) for _ in range(2)])
    assert (len(evaluated(server)), reused) == (2, 0)


def test_large_results_are_read_from_the_journal_and_small_ones_are_not_held(server, store):
    large = "x" * 200_000
    server.evaluate_one = lambda _candidate, _example, _traced: server.ok(1.0, output=large)

    def work(adapter):
        adapter.evaluate(rows(1), SEED)
        batch = adapter.evaluate(rows(1), SEED)
        assert len(repr(vars(adapter.known))) < 10_000
        return batch.outputs[0].result()["output"]

    assert recorded(server, store, work) == (large, 1)
