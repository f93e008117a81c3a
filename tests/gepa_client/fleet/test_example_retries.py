"""When the failure of an example is the candidate's, and when it is an outage: by what is sent, and what comes back."""

import itertools
import time

import pytest

from gepa_client.fleet.example_retries import ExampleRetries, HostEvidence

MODEL = "api.openai.com"


def answered(status="ok", *, succeeded=1, failed=0, reason="429", host=MODEL, **more):
    calls = {"succeeded": succeeded, "failed": failed, **({"reason": reason} if failed else {}), **more}
    error = {"error": {"type": "RateLimitError", "message": "slow down"}} if status != "ok" else {}
    return {"status": status, "score": 1.0 if status == "ok" else None, "hosts": {host: calls}, **error}


def away(reason="429", **more):
    return answered("infra_error", succeeded=0, failed=1, reason=reason, **more)


def unnamed(status):
    return {"status": status, "score": None, "error": {"type": "RateLimitError", "message": "slow down"}}


class Rows:
    """Rows of one run; `story` is a sequence of (row, `>` endpoint: it is sent, `>>`: again) and (row, its result)."""

    def __init__(self, monkeypatch):
        clock = itertools.count(1.0)
        monkeypatch.setattr(time, "monotonic", lambda: next(clock))
        self.evidence = HostEvidence()
        self.retries = {}

    def play(self, story):
        last = {}
        for row, what in story:
            retries = self.retries.setdefault(row, ExampleRetries(self.evidence, [row]))
            if isinstance(what, str):
                retries.sending(what.lstrip(">"), again=what.startswith(">>"))
            else:
                [last[row]] = retries.judge([what])
        return last


def fails(row, times, what=None, at=">one"):
    return [(row, at), (row, what or away())] * times


def works(row, at=">one", what=None):
    return [(row, at), (row, what or answered())]


def story(words):
    """Return what `a-2 b+` stands for: row a fails twice, then row b works."""
    return [
        each
        for word in words.split()
        for each in (works(word[0]) if word[1] == "+" else fails(word[0], int(word[2:] or 1)))
    ]


OF_THE_CANDIDATE = {
    "others succeed after its first failure": story("a- b+ a-2"),
    "its tenth failure while others get over theirs": story("a- b- b+ a-9"),
    "two of eight rows fail each time": story("b-2 a- c+ d+ e+ f+ g+ h+ a-2"),
    "half of the rows fail, and one got over it elsewhere": [*story("a- b- c+"), *works("b", ">two"), *fails("a", 2)],
    "each failure has another reason": [*story("a- b+"), *fails("a", 1, away("503")), *fails("a", 1, away("reset"))],
    "others reach another host": [*fails("a", 1), *works("b", what=answered(host="example.com")), *fails("a", 2)],
    "no host is named": [
        *fails("a", 1, unnamed("infra_error")),
        *works("b", what=unnamed("ok")),
        *fails("a", 2, unnamed("infra_error")),
    ],
}
OUTAGES = {
    "they succeeded before it alone": story("b+ a-9"),
    "nothing of others is known": story("a-12"),
    "the others fail too": story("a- b- a- b- a-"),
    "another row was sent before the outage": [("b", ">one"), *fails("a", 1), ("b", answered()), *fails("a", 4)],
    "the host returns while the third attempt fails, whose answer is then collected": [
        *(*fails("a", 2), ("a", ">one"), *works("b"), ("a", ">>one"), ("a", away()))
    ],
    "others get over such a failure": story("a- b- b+ a-5"),
    "another row has failed once and is yet to be tried again": story("a- b+ a- c- a-"),
    "two of three rows fail each time": story("a- b+ a- c-2 a-"),
    "two of seven rows fail each time": story("b-2 a- c+ d+ e+ f+ g+ a-2"),
    "others got over it within their attempt": [*fails("a", 1), *works("b", what=answered(failed=2)), *fails("a", 2)],
    "others succeed at another server": [*fails("a", 1), *works("b", ">two"), *fails("a", 2)],
    "no host is named and others only fail": [
        *fails("a", 1, unnamed("infra_error")),
        *works("b", what=unnamed("program_error")),
        *fails("a", 2, unnamed("infra_error")),
    ],
}


@pytest.mark.parametrize("name", [*OF_THE_CANDIDATE, *OUTAGES])
def test_a_third_failure_is_the_candidates_only_if_others_succeeded_meanwhile_and_few_fail(name, monkeypatch):
    last = Rows(monkeypatch).play((OF_THE_CANDIDATE | OUTAGES)[name])["a"]
    assert last["status"] == ("program_error" if name in OF_THE_CANDIDATE else "infra_error")
    if name in OF_THE_CANDIDATE:
        assert " times (" in last["error"]["message"]
        assert last["error"]["type"] == "RateLimitError"


@pytest.mark.parametrize(("asked_s", "waited_s"), [(7.0, 7.0), (3600.0, 60.0)])
def test_a_host_that_asks_to_wait_is_left_alone_by_every_row_up_to_a_limit(asked_s, waited_s):
    evidence = HostEvidence()
    for row, asks in (("a", {"retry_after_s": asked_s}), ("b", {}), ("c", {"retry_after_s": 1.0})):
        retries = ExampleRetries(evidence, [row])
        retries.sending("one")
        retries.judge([away(**asks)])
        assert retries.requested_s() == pytest.approx(waited_s, abs=1)
