"""A program of steps with an image as a data URL, which proposes texts itself and has no records of its own."""

import base64

DATA_URL = "data:image/png;base64," + base64.b64encode(b"\x89PNG a drawing").decode()

seed_candidate = {"rules": "draw"}


def run(example, candidate, trace):
    messages = [{"role": "user", "content": example}]
    with trace.step("rules", photo=DATA_URL, messages=messages) as step:
        step.outputs = "a drawing"
    return "a drawing"


def score(example, output):
    return 0.0


def propose_new_texts(candidate, reflective_dataset, components):
    inputs = reflective_dataset["rules"][0]["Inputs"]
    return {"rules": f"{inputs['photo']} {inputs['Context']}"}
