"""Take the new text out of a model's answer: the content of its one fenced block, by CommonMark's rule for fences.

Answers that show no block at all, or whose fences share their lines with text, are read as GEPA reads them.
"""

import re
from dataclasses import dataclass, field

from gepa.strategies.instruction_proposal import InstructionProposalSignature

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
    """Return what an answer holds."""
    blocks, unended, around = _blocks(answer)
    if unended is not None and not blocks and not unended.text and not unended.info:
        unended = None  # a mark at the very end, which closes what began without one
    if unended is not None and unended.ends_within_line():
        blocks, unended = [*blocks, unended], None
    if unended is not None:
        return FencedText(unended.text, has_block=True, is_complete=False)
    if not blocks:
        text: str = InstructionProposalSignature.output_extractor(answer.strip())["new_instruction"]
        first = answer.find(MARKS)
        has_block = answer.count(MARKS) > 1
        unclear = has_block and (answer.count(MARKS) > 2 or _FIRST_LINE.match(answer, first) is not None)
        return FencedText(text, has_block, is_ambiguous=unclear, is_whole=_FENCED.fullmatch(answer) is not None)
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
