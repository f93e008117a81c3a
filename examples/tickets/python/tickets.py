"""Route customer messages by a page of rules, and improve that page without a model.

The candidate's one component, `rules`, is text with a rule in each line:

    refund -> returns
    charged twice -> billing
    otherwise -> feature

The first line that fits decides. A line fits if the message has, for each word on its left, a word that begins with it:
`refund` fits "Refunded?". `otherwise` fits every message. Other lines are ignored.

`../typescript/tickets.ts` is the same program: both give the same answers and write the same rules, character for
character, so words are ASCII only, and ties are decided by the order of the messages.
"""

import re

seed_candidate = {
    "rules": """\
invoice -> billing
password -> account
parcel -> shipping
refund -> returns
crash -> bug
otherwise -> feature"""
}
component_descriptions = {
    "rules": "One rule a line, `words -> desk`. The first line that fits decides; a line fits if each of its words "
    "begins a word of the message. `otherwise -> desk` fits every message and stands last."
}
version = "2"

NEW_LINES = 5  # at most, in one proposal
MOST_LINES = 40  # of a page that a proposal still adds to
SHORTEST = 4  # letters of a word that a proposal adds

RUN_OF_LETTERS = re.compile("[A-Za-z0-9]+")
FEEDBACK = re.compile("expected: (.+), got: ", re.DOTALL)


def run(example, candidate):
    return desk_of(deciding_line(candidate["rules"].split("\n"), words(example["text"])))


def score(example, output):
    got = output or "(nothing; rules are lines such as `invoice -> billing`)"
    return int(output == example["label"]), "expected: " + example["label"] + ", got: " + got


def propose_new_texts(candidate, reflective_dataset, components_to_update):
    """Propose, for each component, its text with a few lines less and a few lines more."""
    return {
        component: "\n".join(
            improved(candidate[component].split("\n"), list(lessons(reflective_dataset.get(component, []))))
        )
        for component in components_to_update
    }


def words(text):
    """The distinct words of a text in its order: ASCII letters and digits, in lower case."""
    return list(dict.fromkeys(word.lower() for word in RUN_OF_LETTERS.findall(text)))


def words_of(line):
    return words(line.partition("->")[0])


def desk_of(line):
    return line.partition("->")[2].strip(" \t\r")


def is_otherwise(line):
    return words_of(line) == ["otherwise"]


def deciding_line(lines, message):
    """The first line that fits the words of a message; "" if none does."""
    return next((line for line in lines if fits(line, message)), "")


def fits(line, message):
    wanted = words_of(line)
    if not wanted or not desk_of(line):
        return False
    return is_otherwise(line) or all(begins(word, message) for word in wanted)


def begins(word, message):
    return any(other.startswith(word) for other in message)


def lessons(records):
    """(words of the message, expected desk) of every record that has both."""
    for record in records:
        inputs, feedback = record.get("Inputs"), record.get("Feedback")
        text = inputs.get("text") if isinstance(inputs, dict) else inputs
        match = FEEDBACK.match(feedback) if isinstance(feedback, str) else None
        if isinstance(text, str) and match:
            yield words(text), match.group(1)


def improved(lines, messages):
    """Remove the lines that do harm, then add the best new line, a few times."""
    lines = [line for line in lines if is_otherwise(line) or harm(line, lines, messages) < 2]
    for _ in range(min(NEW_LINES, MOST_LINES - len(lines))):
        line = best_new_line(lines, messages)
        if line is None:
            break
        last = next((at for at, other in enumerate(lines) if is_otherwise(other)), len(lines))
        lines.insert(last, line)
    return lines


def harm(line, lines, messages):
    """How many more messages the line sends to a wrong desk than to the right one."""
    decided = [desk for message, desk in messages if deciding_line(lines, message) == line]
    return sum(1 if desk != desk_of(line) else -1 for desk in decided)


def best_new_line(lines, messages):
    """The line that sets most messages right among those that no line but `otherwise` decides; None if none does.

    Its word is in two messages for its desk, and at least two thirds of all messages with that word are for that desk.
    """
    undecided = []
    for message, desk in messages:
        line = deciding_line(lines, message)
        if line == "" or is_otherwise(line):
            undecided.append((message, desk, desk_of(line)))
    best, most = None, (0, 0, 0)
    for message, desk, got in undecided:
        for word in message if got != desk else []:
            if len(word) < SHORTEST or word.isdigit():
                continue
            there = [(wanted, now) for other, wanted, now in undecided if begins(word, other)]
            fixed = sum(wanted == desk != now for wanted, now in there)
            broken = sum(wanted == now != desk for wanted, now in there)
            desks = [wanted for other, wanted in messages if begins(word, other)]
            known = desks.count(desk)
            worth = (fixed - broken, known, known - len(desks))
            if worth > most and fixed > broken and known >= 2 and 3 * known >= 2 * len(desks):
                best, most = word + " -> " + desk, worth
    return best
