"""The default reflective records, for programs that do not make their own."""

from __future__ import annotations

from typing import Any


def default_dataset(
    batch: list[dict[str, Any]], results: list[dict[str, Any]], components: list[str], *, traced: bool
) -> dict[str, list[dict[str, Any]]]:
    """The same records for every component. `traced`: trajectories are the steps the program itself recorded."""
    records = [_record(example.get("data"), result, traced=traced) for example, result in zip(batch, results)]  # noqa: B905  # Python 3.8 has no `strict`
    return dict.fromkeys(components, records)


def _record(data: Any, result: dict[str, Any], *, traced: bool) -> dict[str, Any]:
    output = result.get("output")
    record = {
        "Inputs": data,
        "Generated Outputs": "" if output is None else output,
        "Feedback": _feedback(result),
    }
    if traced and result.get("trajectory") is not None:
        record["Trace"] = result["trajectory"]
    return record


def _feedback(result: dict[str, Any]) -> str:
    if result.get("feedback"):
        return str(result["feedback"])
    error = result.get("error")
    if error:
        text = "The program failed: %s: %s" % (error.get("type"), error.get("message"))
        return text + "\n" + error["traceback"] if error.get("traceback") else text
    return "Score: %s" % result.get("score")
