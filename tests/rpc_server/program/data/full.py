"""Everything a module of functions may offer."""

__version__ = "2.5"

component_descriptions = {"prompt": "what to write"}


def seed_candidate():
    return {"prompt": "seed"}


def run(example, candidate, usage, trace):
    trace.append({"step": "read"})
    usage.update(cost_usd=0.25, input_tokens=10)
    trace.append({"step": "answered", "text": candidate["prompt"]})
    return example["output"]


def score(example, output):
    return example.get("as", {"score": 0.5, "feedback": "so so", "objective_scores": {"brevity": 1}})


def propose_new_texts(candidate, reflective_dataset, components_to_update):
    records = reflective_dataset["prompt"]
    return {name: candidate[name] + " better" * len(records) for name in components_to_update}


def make_reflective_dataset(candidate, eval_batch, components_to_update):
    rows = zip(eval_batch["batch"], eval_batch["results"])
    return {
        name: [{"Inputs": row["data"], "Steps": len(result["trajectory"])} for row, result in rows]
        for name in components_to_update
    }


def finalize(best_candidate, best_score, run):
    if best_score < 0:
        raise RuntimeError("cannot finish")
    return "best is %s after %d calls" % (best_candidate["prompt"], run["metric_calls"])
