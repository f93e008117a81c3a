"""Name the team that answers a customer's message, by a model of Anthropic."""

from anthropic import Anthropic

client = Anthropic()
seed_candidate = {"prompt": "Which team should answer this message? Answer with one word."}


def run(example, candidate):
    messages = [{"role": "user", "content": example["text"]}]
    answer = client.messages.create(
        model="claude-haiku-4-5", max_tokens=20, system=candidate["prompt"], messages=messages
    )
    return answer.content[0].text.strip().lower()


def score(example, output):
    return (1, "right") if output == example["label"] else (0, f"expected {example['label']}, got {output}")
