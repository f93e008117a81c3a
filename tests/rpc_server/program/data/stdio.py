"""A program that speaks the protocol over stdio by itself, well or badly: each example names the manner."""

import json
import os
import sys
import time

SEED = {"prompt": "seed"}
MANNERS = sys.argv[1:]


def write(text):
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def answer(request, **members):
    write(json.dumps({"jsonrpc": "2.0", "id": request["id"], **members}))


def discovery():
    capabilities = [name for name in ("refs", "adapter_state", "cancel", "datasets", "scoring") if name in MANNERS]
    return {
        "protocol_versions": ["9"] if "old" in MANNERS else ["1"],
        "server": {"name": "stdio", "version": "1", "language": "python", "instance_id": str(os.getpid())},
        "program": {
            "name": "stdio",
            "version": None,
            "digest": "its own" if "digested" in MANNERS else None,
            "components": [] if "seedless" in MANNERS else [{"name": "prompt", "kind": "text"}],
            "seed_candidate": {} if "seedless" in MANNERS else SEED,
        },
        "datasets": {"train": {"size": 3, "digest": "1"}},
        "capabilities": capabilities,
        "limits": {
            "max_concurrency": 4,
            "max_batch_size": 10,
            "max_request_bytes": 100000,
            "example_timeout_s": 0.3 if "hurried" in MANNERS else None,
        },
    }


def list_examples(request):
    """Two rows a page, of three; `few` runs out early, `texts` has no objects."""
    offset = request["params"]["offset"]
    ids = [str(number) for number in range(2 if "few" in MANNERS else 3)][offset : offset + 2]
    data = {"data": "held" if "texts" in MANNERS else {"output": "held"}}
    answer(request, result={"examples": [{"id": name, "split": "train", **data} for name in ids], "total": 3})


def evaluate(request):
    (example,) = request["params"]["batch"]
    data = example["data"]
    if "begun" in data:
        open(data["begun"], "w").close()
    good = {"status": "ok", "score": 1.0, "output": data.get("output"), "seconds": 0.1}
    do = data.get("do", "good")
    if do == "good":
        answer(request, result={"results": [good]})
    elif do == "result":
        answer(request, result={"results": [{**good, **data["result"]}]})
    elif do == "bare":
        answer(request, result={"results": [data["result"]]})
    elif do == "short":
        answer(request, result={"results": []})
    elif do == "long":
        answer(request, result={"results": [good, good]})
    elif do == "shapeless":
        answer(request, result=data["result"])
    elif do == "raw":
        write('{"jsonrpc":"2.0","id":%s,"result":{"results":[%s]}}' % (json.dumps(request["id"]), data["text"]))
    elif do == "noise":
        write("a line for people")
        write('{"not": "a message"}')
        write("[1, 2]")
        write("{ broken")
        write('{"jsonrpc":"2.0","id":12345678,"result":{}}')
        sys.stdout.write("no newline before this:")
        answer(request, result={"results": [good]})
    elif do == "large":
        head, number = '"jsonrpc":"2.0"', '"id":%s' % json.dumps(request["id"])
        result = '"result":' + json.dumps({"results": [{**good, "output": "y" * data["bytes"]}]})
        orders = {"first": (head, number, result), "last": (head, result, number)}
        write("{%s}" % ",".join(orders[data["id"]]))
    elif do == "flood_stdout":
        for _ in range(300):
            sys.stdout.write("z" * 65536)
        write("")
        answer(request, result={"results": [good]})
    elif do == "error":
        answer(request, error=data["error"])
    elif do == "silent":
        pass
    elif do == "busy":
        while True:
            pass
    elif do == "exit":
        sys.stderr.write("last words\n")
        sys.exit(7)
    elif do == "pid":
        answer(request, result={"results": [{**good, "output": os.getpid()}]})
    elif do == "meta":
        answer(
            request,
            result={
                "results": [{**good, "output": request["params"].get("_meta")}],
                "adapter_state": data.get("state"),
            },
        )


if "mute" in MANNERS:
    time.sleep(600)
if "dead" in MANNERS:
    sys.stderr.write("cannot continue\n")
    sys.exit(2)
for line in sys.stdin:
    request = json.loads(line)
    if request["method"] == "discover":
        if "refusing" in MANNERS:
            answer(request, error={"code": -32603, "message": "Internal error"})
        else:
            answer(request, result={} if "shapeless" in MANNERS else discovery())
    elif request["method"] == "evaluate":
        evaluate(request)
    elif request["method"] == "list_examples":
        list_examples(request)
    elif request["method"] == "score":
        answer(request, result={"results": request["params"]["batch"][0]["data"]})
    elif request["method"] == "make_reflective_dataset":
        answer(request, result={"dataset": {}, "adapter_state": request["params"].get("adapter_state")})
    else:
        answer(request, error={"code": -32601, "message": "Method not found"})
