"""Bugs planted into the server in Go, by replacing texts of its files, and the check that must fail for each."""

EVALUATE = ("func evaluate(params", "var kept map[string]string\nvar cache sync.Map\n\nfunc evaluate(params")
ONE = "results[i] = one(row, candidate, traced)"
CACHED = "key := string(row) + fmt.Sprint(candidate)\nfound, _ := cache.LoadOrStore(key, one(row, candidate, traced))\n"
LOWER = [("strings.ToLower(row.Text)", "row.Text")]
RECOVER = "problem := recover(); problem != nil {\n\t\t\tencoded"

BUGS = {
    "evaluate.order": [("results[i] = one(", "results[len(rows)-1-i] = one(")],
    "evaluate.overlapping": [
        EVALUATE,
        ("results, running", "kept = candidate\nresults, running"),
        (ONE, "results[i] = one(row, kept, traced)"),
    ],
    "core.discover.stable": [('"digest": digest', '"digest": time.Now().String()')],
    "core.discover.complete": [('"version": version', '"version": ""')],
    "evaluate.traces": [EVALUATE, (ONE, CACHED + "results[i] = found.(json.RawMessage)")],
    "evaluate.raise": [(RECOVER, RECOVER.replace("recover()", "any(nil)"))],
}

FLEETS = {
    "no lower()": [],
    "an equal digest": [('"digest": digest', '"digest": "same"')],
    "no digest": [('"digest": digest, ', "")],
    "an equal version": [("var version any", 'var version any = "1"')],
    "an equal instance_id": [("time.Now().Format(time.RFC3339Nano)", '"same"')],
}
"""What both servers of a fleet have; the second lacks a `lower()` besides."""
