"""A program that speaks the protocol over stdio by itself, well or badly: each example names the manner."""

import json
import os
import sys

SEED = {"prompt": "seed"}
MANNERS = sys.argv[1:]
LATER = []


def write(text):
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def answer(request, **members):
    write(json.dumps({"jsonrpc": "2.0", "id": request["id"], **members}))


def discovery():
    if "least" in MANNERS:
        return {"program": {"name": "least", "seed_candidate": SEED}}
    limit_s = {"example_timeout_s": 0.3} if "hurried" in MANNERS else {}
    offered = ("refs", "adapter_state", "reflective_datasets", "datasets", "scoring", "untyped_rows")
    capabilities = [name for name in offered if name in MANNERS]
    return {
        "protocol_versions": ["1"],
        "server": {"name": "stdio", "version": "1", "language": "python", "instance_id": str(os.getpid())},
        "program": {
            "name": "stdio",
            "components": [] if "seedless" in MANNERS else [{"name": "prompt", "kind": "text"}],
            "seed_candidate": {} if "seedless" in MANNERS else SEED,
        },
        "datasets": {
            split: {"size": 3, "digest": "1"} for split in ("train", "secret") if split in ("train", *MANNERS)
        },
        "capabilities": capabilities,
        "limits": {"max_concurrency": 4, "max_batch_size": 10, "max_request_bytes": 100000, **limit_s},
    }


def list_examples(request):
    """Two rows a page, of three; `few` runs out early, `texts` has no objects, those of `secret` stay here."""
    split, offset = request["params"]["split"], request["params"]["offset"]
    ids = [str(number) for number in range(2 if "few" in MANNERS else 3)][offset : offset + 2]
    data = {} if split == "secret" else {"data": "held" if "texts" in MANNERS else {"output": "held"}}
    answer(request, result={"examples": [{"id": name, "split": split, **data} for name in ids], "total": 3})


def evaluate(request):
    (example,) = request["params"]["batch"]
    data = example["data"]
    if "begun" in data:
        open(data["begun"], "w").close()
    good = {"status": "ok", "score": 1.0, "output": data.get("output"), "seconds": 0.1}
    do = data.get("do", "good")
    if do == "good":
        answer(request, result={"results": [good]})
        for kept, result in LATER:
            answer(kept, result={"results": [result]})
        LATER.clear()
    elif do == "result":
        answer(request, result={"results": [{**good, **data["result"]}]})
    elif do == "answer":
        answer(request, **{name: data[name] for name in ("result", "error") if name in data})
    elif do == "later":
        LATER.append((request, good))
    elif do == "write":
        sys.stdout.write(data["text"].replace("ID", str(request["id"])))
        sys.stdout.flush()
    elif do == "large":
        head, number = '"jsonrpc":"2.0"', '"id":%s' % json.dumps(request["id"])
        result = '"result":' + json.dumps({"results": [{**good, "output": "y" * data["bytes"]}]})
        write("{%s,%s,%s}" % (head, result, number))
    elif do == "flood_stdout":
        for _ in range(300):
            sys.stdout.write("z" * 65536)
        sys.stdout.flush()
    elif do == "busy":
        while True:
            pass
    elif do == "exit":
        sys.stdout.write(data.get("half", ""))
        sys.stderr.write("last words\n")
        sys.exit(7)
    elif do == "row":
        answer(request, result={"results": [{**good, "output": example}]})
    elif do == "pid":
        answer(request, result={"results": [{**good, "output": os.getpid()}]})
    elif do == "meta":
        results = [{**good, "output": request["params"].get("_meta")}]
        answer(request, result={"results": results, "adapter_state": data.get("state")})


if "dead" in MANNERS:
    sys.stderr.write("cannot continue\n")
    sys.exit(2)
for line in sys.stdin:
    request = json.loads(line)
    if request["method"] == "discover":
        answer(request, result=discovery())
    elif request["method"] in ("evaluate", "list_examples"):
        globals()[request["method"]](request)
    elif request["method"] == "score":
        answer(request, result={"results": request["params"]["batch"][0]["data"]})
    elif request["method"] == "make_reflective_dataset":
        params = request["params"]
        refs = [result.get("trajectory_ref") for result in params.get("eval_batch", {}).get("results", [])]
        made = {"dataset": {"prompt": [{"refs": refs}]}, "adapter_state": params.get("adapter_state")}
        answer(request, result=params.get("answer", made))
    else:
        answer(request, error={"code": -32601, "message": "Method not found"})
