"""Judge whether an answer of reflection is a new text, and word the prompt that asks once more if it is none.

GEPA takes any answer for a text: in a published run 13 of 23 candidates were the beginnings of a model's thoughts
(github.com/gepa-ai/gepa/issues/390). An answer without a fenced block is a text if the prompt wants no block, or if a
second prompt that asked for one was answered so too, unless it begins as an analysis does.
"""

import re
from dataclasses import dataclass, field, replace

from gepa.strategies.instruction_proposal import InstructionProposalSignature

from evolverpc_common.exact_values import is_unicode
from gepa_client.gepa.reflection_prompt import BYTES_PER_TOKEN, Prompt, tokens_of
from gepa_client.journal.run_events import UnusableReason

_TAGS = ("think", "thinking", "reasoning")

_QUOTES = re.compile(r"```[^`]*<(?:curr_param|side_info|outline|lineage)>[^`]*```")
"""A block of a template that shows the model something."""

_THINKS = re.compile(rf"^[^\S\n]*<(?P<tag>{'|'.join(_TAGS)})>", re.MULTILINE)

_ANALYSIS = re.compile(
    r"\W*(?:"
    r"(?:okay|ok|alright|all right|hmm+|wait)\b"
    r"|(?:(?:first|now|so|then)\b\W*)?(?:let me|let's|let us|i need to|i should|i will|i'll|i see|i think|we need to)\b"
    r"|looking at\b|after (?:reviewing|reading|analy[sz]ing)\b|to (?:improve|fix|address) (?:the|this|these)\b"
    r"|the (?:current|present|existing|original|given) (?:instructions?|prompt|text)\b"
    r"|the assistant(?:'s| failed| fails| was| is not| did| does not| got| missed| struggle)"
    r"|the (?:examples?|feedback|responses?) (?:show|indicate|suggest|reveal|is|are)"
    r"|(?:my )?(?:analysis|reasoning|thoughts?|thinking|observations?)(?: process)?\W*(?:\n|:)"
    r")",
    re.IGNORECASE,
)
"""How an analysis of the task begins, which speaks of the text and its examples; a rule of thumb for English."""


def extracted(answer: str) -> str:
    """Return the text that GEPA takes from an answer, for runs that check none: all from its first mark to its last."""
    text: str = InstructionProposalSignature.output_extractor(answer.strip())["new_instruction"]
    return text


def wants_block(template: str) -> bool:
    """Return whether a template asks for a fenced block, beside those in which it shows something."""
    return MARKS in _QUOTES.sub("", template)


MARKS = "```"

_FENCE = re.compile(r"(?P<indent>[ \t]*)(?P<marks>`{3,}|~{3,})(?P<info>[^\n]*)")
_FIRST_LINE = re.compile(r"`{3,}[^\S\n]*\S+[^\S\n]+\S[^\n`]*\n")
"""A mark with two words or more behind it on its line: a language has one, so these may be the text itself."""

_FENCED = re.compile(r"\s*```.*```\s*", re.DOTALL)

_DEEPEST = 3
"""Spaces by which the fence that ends a block may be indented more than the one that began it."""


@dataclass
class _Block:
    """A fenced block: its opening fence, and the lines after it so far. `info`: what is behind the marks."""

    indent: int
    marks: str
    info: str
    lines: list[str] = field(default_factory=list)

    def is_fence(self, line: str) -> "_Block | None":
        """Return what a line begins if it is a fence that could end this block, but for its info."""
        found = _opened(line)
        suits = found is not None and found.marks.startswith(self.marks) and found.indent <= self.indent + _DEEPEST
        return found if suits else None

    @property
    def ends(self) -> bool:
        """Whether it may end another block: no language follows the marks, but nothing, or words after a space."""
        return not self.info or (self.info[0].isspace() and len(self.info.split()) > 1)

    def ends_within_line(self) -> bool:
        """Take marks off the end of the last line, behind text; return whether they are there."""
        last = self.lines[-1].rstrip() if self.lines else ""
        if not last.endswith(self.marks) or _opened(last) is not None:
            return False
        self.lines[-1] = last.removesuffix(self.marks)
        return True

    @property
    def text(self) -> str:
        """Its content without the indentation that the opening fence has too."""
        indented = re.compile(rf"[ \t]{{0,{self.indent}}}")
        lines = [indented.sub("", line, count=1) for line in self.lines] if self.indent else self.lines
        return "\n".join(lines).strip()


@dataclass(frozen=True)
class FencedText:
    """What an answer holds. `text`: its content as far as one can be named, without fences.

    `has_block`: a fenced block. `is_complete`: False if a block has no end. `is_ambiguous`: nothing shows what the text
    is, as there are several blocks, or words behind the opening fence. `is_whole`: nothing stands around the block.
    """

    text: str
    has_block: bool
    is_complete: bool = True
    is_ambiguous: bool = False
    is_whole: bool = True


def read_answer(answer: str) -> FencedText:
    """Return what an answer holds: the content of its one fenced block, by CommonMark's rule for fences.

    Answers that show no block at all, or whose fences share their lines with text, are read as GEPA reads them.
    """
    blocks, unended, around = _blocks(answer)
    if unended is not None and not blocks and not unended.text and not unended.info:
        unended = None  # a mark at the very end, which closes what began without one
    if unended is not None and unended.ends_within_line():
        blocks, unended = [*blocks, unended], None
    if unended is not None:
        return FencedText(unended.text, has_block=True, is_complete=False)
    if not blocks:
        first = answer.find(MARKS)
        has_block = answer.count(MARKS) > 1
        unclear = has_block and (answer.count(MARKS) > 2 or _FIRST_LINE.match(answer, first) is not None)
        return FencedText(
            extracted(answer), has_block, is_ambiguous=unclear, is_whole=_FENCED.fullmatch(answer) is not None
        )
    ambiguous = len(blocks) > 1 or len(blocks[0].info.split()) > 1
    return FencedText(blocks[0].text, has_block=True, is_ambiguous=ambiguous, is_whole=not around)


def _blocks(answer: str) -> tuple[list[_Block], _Block | None, bool]:
    """Return the outermost blocks, the one that has no end, and whether text stands around them."""
    blocks: list[_Block] = []
    open_blocks: list[_Block] = []
    around = False
    for line in answer.split("\n"):
        if not open_blocks:
            begun = _opened(line)
            around |= begun is None and bool(line.strip())
            open_blocks += [begun] if begun is not None else []
            continue
        outer, innermost = open_blocks[0], open_blocks[-1]
        fence = innermost.is_fence(line)
        if fence is not None and not fence.ends:
            open_blocks.append(fence)
        elif fence is not None:
            open_blocks.pop()
            if not open_blocks:
                around |= bool(fence.info)
                blocks.append(outer)
                continue
        outer.lines.append(line)
    return blocks, open_blocks[0] if open_blocks else None, around


def _opened(line: str) -> _Block | None:
    """Return the block that a line would begin; None for a line that is no fence."""
    found = _FENCE.fullmatch(line.rstrip("\r"))
    if found is None or (found["marks"][0] == "`" and "`" in found["info"]):
        return None
    return _Block(len(found["indent"]), found["marks"], found["info"].rstrip())


@dataclass(frozen=True)
class AnswerCheck:
    """What an answer must be. `max_tokens`: of a component's text, by the estimate of `tokens_of`; None for any."""

    max_tokens: int | None = None

    def judged(self, text: str, before: str) -> UnusableReason | None:
        """Return why a proposed text cannot be used, None if it can; `before`: the parent's text."""
        if not is_unicode(text):
            return "not text"
        if text.strip() == before.strip():
            return "unchanged"
        if not text.strip():
            return "empty"
        if self.max_tokens is not None and tokens_of(text) > self.max_tokens:
            return "too long"
        return None

    def bounded(self, prompt: Prompt) -> Prompt:
        """Return the prompt with the bound on the length, if there is one."""
        if self.max_tokens is None:
            return prompt
        return with_paragraph(
            prompt,
            f"The new text must have at most {self.max_tokens:,} tokens, that is about "
            f"{self.max_tokens * BYTES_PER_TOKEN:,} characters.",
        )


@dataclass(frozen=True)
class AnswerForm:
    """How an answer holds its text. `block`: in a fenced block, as the prompt asks; `what`: the text, in words."""

    block: bool
    what: str = "new text"

    def judged(self, answer: str, before: str, *, cut_off: bool, block_expected: bool) -> UnusableReason | None:
        """Return why an answer holds no text, None if it holds one; `before`: the parent's text.

        `cut_off`: it ended at the limit of tokens. `block_expected`: False if the model was asked for a block
        already and gave none: then an answer as a whole counts as the text, unless it begins as an analysis does.
        """
        read = read_answer(answer)
        if cut_off or not read.is_complete:
            return "truncated"
        if _is_thinking(answer, extracted(answer), before):
            return "monologue"
        if read.is_ambiguous or (read.has_block and not self.block and not read.is_whole):
            return "ambiguous"
        if not read.text:
            return "empty"
        if not read.has_block and ((self.block and block_expected) or _ANALYSIS.match(answer)):
            return "monologue"
        return None

    def text(self, answer: str) -> str:
        """Return the text of an answer that is judged to hold one."""
        return read_answer(answer).text

    def lacks_block(self, answer: str) -> bool:
        """Return whether the answer has no block although the prompt asks for one."""
        return self.block and not read_answer(answer).has_block

    def again(self, reason: str) -> "AnswerForm":
        """Return the form of the answer to a second prompt: in a block if the first one was ambiguous."""
        return replace(self, block=self.block or reason == "ambiguous")

    def asked_again(self, prompt: Prompt, reason: UnusableReason, check: AnswerCheck) -> Prompt:
        """Return the prompt with why an earlier answer to it could not be used."""
        what, where = self.what, f", within {MARKS} blocks" if self.again(reason).block else ""
        fault = {
            "truncated": f"was cut off before the {what} was complete: think less, and write a shorter {what}",
            "empty": f"had no {what}",
            "unchanged": "was the present text, unchanged: change it so that the examples above would go better",
            "ambiguous": f"did not show where the {what} begins and ends: write one block, with nothing behind the "
            f"{MARKS} that begin it, and begin and end that block by {MARKS}` if the {what} has blocks of its own",
            "not text": f"had a {what} with half of a character, which no text can hold",
            "monologue": f"was an analysis or a part of one, not a {what} alone",
            "too long": f"had more than {check.max_tokens or 0:,} tokens: keep what matters most",
        }[reason]
        return with_paragraph(
            prompt,
            f"You have answered this once already, and the answer could not be used: it {fault}. "
            f"Answer now with the whole {what} and nothing else{where}.",
        )


def _is_thinking(answer: str, text: str, before: str) -> bool:
    """Return whether an answer is thoughts between tags, or the text that GEPA takes from it has a part of them."""
    head, fenced, _ = answer.partition(MARKS)
    opened = [match["tag"] for match in _THINKS.finditer(head)]
    if fenced:
        if opened and f"</{opened[-1]}>" not in head[head.rfind(f"<{opened[-1]}>") :]:
            return True
    elif opened and not before.lstrip().startswith(f"<{opened[0]}>"):
        return answer.lstrip().startswith(f"<{opened[0]}>") or f"</{opened[-1]}>" not in answer
    return any(text.count(f"</{tag}>") > text.count(f"<{tag}>") and f"</{tag}>" not in before for tag in _TAGS)


def with_paragraph(prompt: Prompt, more: str) -> Prompt:
    """Return the prompt with a further paragraph; of chat messages, in the first text of the last one."""
    if isinstance(prompt, str):
        return f"{prompt}\n\n{more}"
    *others, last = prompt
    at = next(at for at, part in enumerate(last["content"]) if part["type"] == "text")
    content = [dict(part) for part in last["content"]]
    content[at]["text"] += f"\n\n{more}"
    return [*others, {**last, "content": content}]
