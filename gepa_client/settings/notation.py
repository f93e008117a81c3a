"""The small notations a setting's text may be written in: stoppers, strategies, proposals per iteration."""

import re

SAMPLING = re.compile(r"single|(same_parent|independent):([1-9]\d*)|pxn:([1-9]\d*)x([1-9]\d*)")
SELECTION = re.compile(r"all|best|top_k:([1-9]\d*)")
PROPOSALS = re.compile(r"([1-9]\d*)(?:x([1-9]\d*))?")
STOPPERS: dict[str, type[int] | type[float] | type[str]] = {
    "timeout": float,
    "no_improvement": int,
    "score_threshold": float,
    "max_tracked_candidates": int,
    "max_candidate_proposals": int,
    "file": str,
}


def parse_stopper(text: str) -> tuple[str, int | float | str]:
    """`timeout:60` -> `("timeout", 60.0)`.

    Raises:
        ValueError: no such stopper, or its value is not of its kind.
    """
    kind, separator, value = text.partition(":")
    read = STOPPERS.get(kind)
    if read is None or not separator or not value:
        raise ValueError(f"stop_callbacks: {text!r} is not one of {', '.join(f'{name}:VALUE' for name in STOPPERS)}")
    try:
        parsed = read(value)
    except ValueError as error:
        raise ValueError(f"stop_callbacks: {text!r} needs a number after the colon") from error
    if kind not in ("file", "score_threshold") and not (isinstance(parsed, int | float) and 0 < parsed < 2**53):
        raise ValueError(f"stop_callbacks: {text!r} needs a number above 0")
    if isinstance(parsed, float) and parsed != parsed:
        raise ValueError(f"stop_callbacks: {text!r} needs a number")
    return kind, parsed


def sampling_of(proposals: str) -> str:
    """The sampling strategy that `proposals` stands for: `1` is `single`, `4` `independent:4`, `2x4` `pxn:2x4`.

    Raises:
        ValueError: it is neither `P` nor `PxN`.
    """
    if not PROPOSALS.fullmatch(proposals):
        raise ValueError("proposals: give P or PxN, such as 4 or 2x4, with whole numbers above 0")
    if "x" in proposals:
        return f"pxn:{proposals}"
    return "single" if proposals == "1" else f"independent:{proposals}"
