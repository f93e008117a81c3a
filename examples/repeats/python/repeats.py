"""Find the first word of a text that was there before, regardless of case and punctuation."""

seed_candidate = {"ignored": "a an and of the to"}
component_descriptions = {"ignored": "Words that may come again, between spaces."}


def run(example, candidate):
    return first_repeat(example["text"], candidate["ignored"])


def score(example, output):
    if output == example["answer"]:
        return 1, "right"
    return 0, f"expected {example['answer']!r}, got {output!r}"


def first_repeat(text, ignored):
    """The first word that was there before, as `plain` makes it; "" if there is none."""
    words = text.split()
    for at, word in enumerate(words):
        before = [plain(other) for other in words[:at]]
        if word in before and word not in ignored.split():
            return plain(word)
    return ""


def plain(word):
    return word.strip(".,;:!?\"'()").lower()
