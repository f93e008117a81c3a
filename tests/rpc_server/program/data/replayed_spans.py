"""Records the spans `{name, parent, attributes, events, error}` of an example, in the order in which they start."""

from opentelemetry import trace

seed_candidate = {"planner": "Plan the trip in days.", "solver": "Solve it.", "checker": "Plan", "short": "Plan the"}
tracer = trace.get_tracer("replayed")


def run(example, candidate):
    spans = []
    for each in example["spans"]:
        parent = trace.set_span_in_context(spans[each["parent"]]) if "parent" in each else None
        span = tracer.start_span(each["name"], parent, attributes=each["attributes"])
        for event, attributes in each.get("events", []):
            span.add_event(event, attributes)
        if "error" in each:
            span.set_status(trace.StatusCode.ERROR, each["error"])
        spans.append(span)
    for span in reversed(spans):
        span.end()
    return len(spans)


def score(example, output):
    return 1
