"""The prompt that asks a reflection model for a change of code, and the marks in it."""

OUTLINE, RECORDS, LINEAGE = "<outline>", "<side_info>", "<lineage>"
MARKS = (OUTLINE, RECORDS, LINEAGE)

DEFAULT_TEMPLATE = f"""You improve a program by having its code changed. An overview of the program's code:
```
{OUTLINE}
```

Examples of inputs that the program was given, what it did with each of them, and feedback on how that could be better:
```
{RECORDS}
```

Changes that were asked for earlier, and what came of each:
```
{LINEAGE}
```

Find out what most often goes wrong in these examples, and which single change of the program's code would help with \
inputs of this kind in general, not only with these. It may change how the program works: its steps, what it asks a \
model and how often, the tools and checks it uses, how it reads inputs and writes outputs. It may add texts that are \
tuned later, such as prompts for new steps. Do not repeat a change that was rejected or was not better, unless you \
know what to do otherwise. Never have the program contain answers to these examples, and leave alone how it is scored.

Write one change request for a programmer who sees the code, but not your reasoning: what to change and why, precise \
enough to be carried out, in a few paragraphs and without writing the code yourself. If you know where the change \
belongs, begin with a line such as `Location: path/to/file, name of the function`.

Provide the change request within ``` blocks."""
