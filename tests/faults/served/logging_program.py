"""A small deterministic program that notes, in a file its rows name, every example that really runs.

A row wants two words, each in a component of its own. An output names the execution that made it, so that a test can
see which executions a journal kept.
"""

import base64
import hashlib
import http.client
import json
import os
import time
import urllib.parse

COMPONENTS = int(os.environ.get("FAULTS_COMPONENTS", "3"))
seed_candidate = {f"part{number}": "start" for number in range(COMPONENTS)}
version = "1"


def run(example, candidate, trace):
    ran = os.urandom(8).hex()
    note(example["log"], what="example", ran=ran, row=example["n"], candidate=digest_of(candidate))
    time.sleep(example["ms"] / 1000)
    missing = [[part, word] for part, word in example["wants"] if word not in candidate[part].split()]
    trace.append({"missing": missing})
    length = sum(len(text) for text in candidate.values())
    value = 0.2 + 0.4 * (2 - len(missing)) - length / 10000 + example["n"] / 1000
    return {"value": round(value, 4), "missing": missing, "ran": ran}


def score(example, output):
    return output["value"], f"missing: {output['missing']}"


def make_reflective_dataset(candidate, eval_batch, components_to_update):
    """What each component lacks, read from the trajectories: a reference that was not resolved would fail here."""
    log = eval_batch["batch"][0]["data"]["log"]
    note(log, what="reflective_dataset", candidate=digest_of(candidate))
    missing = [step["missing"] for result in eval_batch["results"] for step in result["trajectory"]]
    return {
        component: [{"word": word, "log": log} for wanted in missing for part, word in wanted if part == component]
        or [{"word": None, "log": log}]
        for component in components_to_update
    }


def propose_new_texts(candidate, reflective_dataset, components_to_update):
    """Now and then one of the words that are missing; else one of no use, and at times a word is lost."""
    texts = {}
    for component in components_to_update:
        records = reflective_dataset[component]
        note(records[0]["log"], what="proposal", candidate=digest_of(candidate), component=component)
        wanted = [record["word"] for record in records if record["word"] is not None]
        words = candidate[component].split()
        luck = int(digest_of([candidate, wanted]), 16)
        if wanted:
            words.append(wanted[luck % len(wanted)] if luck % 3 == 0 else f"nothing{luck % 100}")
        if luck % 5 == 0 and len(words) > 1:
            words.pop(luck % len(words))
        texts[component] = " ".join(sorted(set(words)))
    return texts


def digest_of(value):
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def note(log, **fields):
    """Write one line atomically: processes killed at any moment leave whole lines. `log`: a file, or an http:// URL."""
    line = json.dumps({**fields, "at": time.monotonic()}) + "\n"
    if log.startswith("http://"):
        post(log, line)
        return
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


def post(url, line):
    """Send the line through the sandbox's proxy; waits for ever once that is gone, for the sandbox ends with it."""
    proxy = urllib.parse.urlsplit(os.environ["HTTP_PROXY"])
    pair = base64.b64encode(f"{proxy.username}:{proxy.password}".encode()).decode()
    try:
        connection = http.client.HTTPConnection(proxy.hostname, proxy.port)
        connection.request("POST", url, line.encode(), {"Proxy-Authorization": f"Basic {pair}"})
        answer = connection.getresponse()
        connection.close()
    except OSError:
        time.sleep(3600)
    if answer.status != 204:
        raise RuntimeError(f"the note was refused: {answer.status} {answer.reason}")
