"""A program with its own optimization: rules that name the quantity of a unit, learnt from what was expected."""

import sys

import evolverpc

seed_candidate = {"rules": "otherwise -> length", "hint": "none"}
UNITS = {"metre": "length", "gram": "mass", "second": "time", "litre": "volume", "mile": "length", "day": "time"}


def rows(numbers):
    return [{"text": f"{unit} {number}", "label": label} for number in numbers for unit, label in UNITS.items()]


def run(example, candidate):
    for line in candidate["rules"].splitlines():
        word, _, label = line.partition(" -> ")
        if word == "otherwise" or word in example["text"]:
            return label
    return None


def score(example, output):
    return (1, "right") if output == example["label"] else (0, f"expected {example['label']}")


def propose(candidate, dataset, components):
    """Add a rule for the first record that went wrong."""
    lines = candidate["rules"].splitlines()
    for record in dataset.get("rules", ()):
        if record["Feedback"] != "right":
            lines.insert(0, f"{record['Inputs']['text'].split()[0]} -> {record['Feedback'].split()[-1]}")
            break
    return {name: "\n".join(lines) if name == "rules" else candidate[name] for name in components}


def optimized(program, seed, **more):
    return evolverpc.optimize(
        program,
        trainset=rows(range(2)),
        valset=rows(range(2, 5)),
        testset=rows(range(5, 7)),
        propose=propose,
        max_metric_calls=150,
        module_selector="all",
        proposals="2",
        seed=seed,
        output=f"out-{seed}",
        **more,
    )


if __name__ == "__main__":
    print(optimized(__file__, int(sys.argv[1])))
