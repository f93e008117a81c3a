"""The reference server's steps: those of an example as it runs, and the records that each component has of its own."""

import asyncio
import json
import random
import re
from collections.abc import Callable
from typing import Any

Bad = Callable[[str], bool]
DATA_URL = re.compile(r"data:(image/[a-z0-9.+-]+);base64,([A-Za-z0-9+/]+=*)")
UNPARSED = (
    "Couldn't parse the output as per the expected output format. The model's raw response was:\n```\n%s\n```\n\n"
)


async def run_steps(bad: Bad, wanted: list[dict[str, Any]], recorded: list[dict[str, Any]]) -> None:
    """Run the steps that an example asks for; each is in `recorded` from its start."""
    for one in wanted:
        name = {"component": one["component"]} if "component" in one else {"name": one["name"]}
        if bad("tools_are_components"):
            name = {"component": one.get("component") or one["name"]}
        step: dict[str, Any] = {**name, "inputs": one.get("inputs", {}), "outputs": None}
        if bad("steps_without_inputs"):
            del step["inputs"]
        if not (bad("caps_steps") and len(recorded) >= 100):
            recorded.insert(0 if bad("steps_backwards") else len(recorded), step)
        within = one.get("steps", [])
        inner: list[dict[str, Any]] = recorded if bad("flattens_steps") else step.setdefault("steps", [])
        await asyncio.sleep(0)
        step["seconds"] = -1.0 if bad("steps_take_less_than_nothing") else 0.01
        failure = one.get("parse_failure")
        try:
            await run_steps(bad, within, inner)
            if "raise" in one:
                raise ValueError(one["raise"])
        except ValueError as error:
            if not bad("drops_errors_of_steps"):
                step["error"] = {"type": type(error).__name__, "message": str(error)}
            raise
        if failure is None:
            step["outputs"] = json.dumps(one.get("outputs")) if bad("outputs_as_text") else one.get("outputs")
        else:
            kind = "ValueError" if bad("parse_failures_are_errors") else "parse_failure"
            step["error"] = {"type": kind, "message": failure["message"]}
            if not bad("drops_raw_answers"):
                step |= {"raw": failure["raw"], "expected": failure["expected"]}
            if bad("parse_failures_end_examples"):
                raise ValueError(failure["message"])


class StepRecords:
    """The records of one call of `make_reflective_dataset`; `images` are those found in them, by id."""

    def __init__(self, bad: Bad, seed: int | None) -> None:
        self.bad = bad
        self.images: dict[str, Any] = {}
        self.seed = (1 if bad("default_seed_of_its_own") else 0) if seed is None or bad("seed_unread") else seed
        if bad("short_seeds") and isinstance(self.seed, int):
            self.seed %= 2**32
        self.generator = random.Random(self.seed)

    def of(self, results: list[Any], whole: list[Any], names: list[str]) -> dict[str, list[Any]] | None:
        """The records of each component's own steps; None if there are no steps at all."""
        steps = [self.steps_of(result) for result in results]
        stepless = [found is None if self.bad("empty_lists_count") else not self.counted(found) for found in steps]
        if all(stepless) or self.bad("steps_unread"):
            return None
        places = [(name, at) for name in names for at in range(len(results))]
        if self.bad("draws_by_example"):
            places.sort(key=lambda place: place[1])
        if self.bad("draws_by_name"):
            places.sort(key=lambda place: place[0])
        dataset: dict[str, list[Any]] = {name: [] for name in names}
        for name, at in places:
            if self.bad("draws_anew") and at == 0:
                self.generator.seed(self.seed)
            label = "name" if self.bad("names_are_components") else "component"
            own = [step for step in steps[at] or [] if name in (step.get("component"), step.get(label))]
            if own:
                dataset[name].append(self.record(self.chosen(own), name, results[at]))
            elif self.bad("whole_if_no_own_steps") or (stepless[at] and not self.bad("drops_examples_without_steps")):
                dataset[name].append(self.whole_record(whole[at], name, results[at]))
        if self.bad("drops_empty_components"):
            dataset = {name: records for name, records in dataset.items() if records}
        return dataset

    def steps_of(self, result: dict[str, Any]) -> list[Any] | None:
        trajectory = result.get("trajectory")
        if not isinstance(trajectory, dict) or trajectory.get("steps") is None:
            return None
        return self.flat(trajectory["steps"])

    def counted(self, steps: list[Any] | None) -> list[Any]:
        """The steps that stand for an example's record: those of components."""
        return [step for step in steps or [] if step.get("component") or self.bad("tools_count")]

    def flat(self, steps: list[Any]) -> list[Any]:
        nested = not self.bad("outer_steps_only")
        return [found for step in steps for found in (step, *(self.flat(step.get("steps") or []) if nested else []))]

    def chosen(self, own: list[Any]) -> dict[str, Any]:
        failed = [step for step in own if step.get("error")]
        if failed and not self.bad("failed_like_others"):
            if self.bad("draws_failed"):
                self.generator.choice(own)
            return failed[-1 if self.bad("last_failed") else 0]
        if self.bad("takes_first"):
            return own[0]
        if self.bad("draws_a_fraction"):
            return own[int(self.generator.random() * len(own))]
        if len(own) == 1 and self.bad("single_not_drawn"):
            return own[0]
        return self.generator.choice(own)

    def record(self, step: dict[str, Any], name: str, result: dict[str, Any]) -> dict[str, Any]:
        absent = None if self.bad("nulls_in_records") else ""
        inputs = {} if step.get("inputs") is None and absent == "" else step.get("inputs")
        outputs = absent if step.get("outputs") is None else self.with_references(step["outputs"])
        if self.bad("falsy_is_nothing"):
            outputs = outputs or ""
        by_component = result.get("component_feedback") or {}
        if self.bad("feedback_of_any_component") and by_component:
            by_component = {name: next(iter(by_component.values()))}
        feedback = whole_feedback(result) if self.bad("component_feedback_unread") else by_component.get(name)
        feedback = feedback or ("" if self.bad("no_feedback_of_examples") else whole_feedback(result))
        error = step.get("error") or {}
        if error.get("type") == "parse_failure" and not self.bad("parse_failures_unread"):
            outputs = UNPARSED % (step.get("raw") or "")
            if self.bad("raw_alone"):
                outputs = step.get("raw")
            expected = step.get("expected")
            feedback = f"Your output failed to parse. Follow this structure:\n{expected}"
            if expected is None and not self.bad("structure_always"):
                feedback = f"Your output failed to parse: {error['message']}"
        elif error and not self.bad("errors_unread"):
            line = f"This step failed: {error['type']}: {error['message']}"
            feedback = f"{feedback}\n{line}" if self.bad("errors_last") else f"{line}\n{feedback}"
        return {
            "Inputs": self.with_context(self.with_references(inputs)),
            "Generated Outputs": outputs,
            "Feedback": feedback,
        }

    def whole_record(self, record: dict[str, Any], name: str, result: dict[str, Any]) -> dict[str, Any]:
        """The record of an example without steps, with the feedback on the component."""
        feedback = (result.get("component_feedback") or {}).get(name)
        return record | {"Feedback": feedback} if feedback and not self.bad("feedback_needs_steps") else record

    def with_context(self, inputs: Any) -> Any:
        if not isinstance(inputs, dict) or self.bad("histories_stay"):
            return inputs
        histories = [name for name, value in inputs.items() if self.is_history(value)]
        if not histories:
            return inputs
        name = histories[-1 if self.bad("last_history") else 0]
        compact = (", ", ": ") if self.bad("spacious_context") else (",", ":")
        lines = [f"  {at}: {json.dumps(message, separators=compact)}\n" for at, message in enumerate(inputs[name])]
        context = {"Context": "```json\n" + "".join(lines) + "```"}
        others = {other: value for other, value in inputs.items() if other != name}
        return others | context if self.bad("context_last") else context | others

    def is_history(self, value: Any) -> bool:
        if not isinstance(value, list):
            return False
        if self.bad("any_list_is_a_history"):
            return True
        messages = [item for item in value if isinstance(item, dict)]
        return bool(value) and all(
            item in messages and isinstance(item.get("role"), str) and "content" in item for item in value
        )

    def with_references(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: self.with_references(part) for name, part in value.items()}
        if isinstance(value, list):
            return [self.with_references(part) for part in value]
        if not isinstance(value, str) or self.bad("data_urls_stay"):
            return value
        url = DATA_URL.search(value) if self.bad("data_urls_anywhere") else DATA_URL.fullmatch(value)
        if url is None:
            return value
        name = str(len(self.images)) if self.bad("step_images_repeated") else value
        self.images[name] = {"media_type": url.group(1), "base64": url.group(2)}
        return {"$image": name}


def whole_feedback(result: dict[str, Any]) -> str:
    """The feedback on an example as a whole."""
    if result.get("feedback"):
        return str(result["feedback"])
    if result["status"] == "ok":
        return f"Score: {result['score']}"
    error = result.get("error") or {"type": "Error", "message": ""}
    return f"The program failed: {error['type']}: {error['message']}"
