"""A classifier of bank messages, as a user would write it: one prompt, one call of a model by its environment."""

from openai import OpenAI

client = OpenAI(max_retries=0)
seed_candidate = {"prompt": "Which intent has this message of a bank's customer? Answer with one label."}


def run(example, candidate):
    """Return the label that the model answers."""
    messages = [{"role": "system", "content": candidate["prompt"]}, {"role": "user", "content": example["text"]}]
    answer = client.chat.completions.create(model="local", messages=messages, max_tokens=24, temperature=0)
    return answer.choices[0].message.content.strip().lower()


def score(example, output):
    """Return 1 for the label, up to half for a share of its words."""
    label = example["label"].lower()
    words = label.split("_")
    found = sum(word in output for word in words) / len(words)
    return (1, "right") if label in output else (0.5 * found, f"expected {label}, got {output[:80]}")
