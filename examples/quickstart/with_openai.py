"""Name the team that answers a customer's message, by a model of OpenAI."""

from openai import OpenAI

client = OpenAI()
seed_candidate = {"prompt": "Which team should answer this message? Answer with one word."}


def run(example, candidate):
    messages = [{"role": "system", "content": candidate["prompt"]}, {"role": "user", "content": example["text"]}]
    answer = client.chat.completions.create(model="gpt-5-mini", messages=messages)
    return answer.choices[0].message.content.strip().lower()


def score(example, output):
    return (1, "right") if output == example["label"] else (0, f"expected {example['label']}, got {output}")
