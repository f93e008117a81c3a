"""The error of Node in the output of a program."""

import pytest

from evolverpc_common.output_tail import node_failure

FAULT = "file:///p/a.mjs:2\nf(\n ^\n\nSyntaxError: no\n    at f (node:internal:1)\n\nNode.js v20.1.0\n"


def test_what_the_program_printed_before_and_after_nodes_error_is_kept() -> None:
    reason = "/p/a.mjs, line 2: SyntaxError: no; correct it and start again"
    assert node_failure(f"before\n{FAULT}after\n") == (reason, "before\nf(\n ^\nafter")


@pytest.mark.parametrize("output", ["", "Traceback: no\n", "\nNode.js v20", FAULT.partition("Node.js")[0]])
def test_other_output_has_no_error_of_node(output: str) -> None:
    assert node_failure(output) is None


@pytest.mark.timeout(20)
@pytest.mark.parametrize("lines", ["a:1\nb\n^\nc\n", "a:1\n", "a:1:", "node:a:1\nb\n^\n" + "c\n" * 9])
@pytest.mark.parametrize("end", ["", "\nNode.js v2\n", "\nNode.js v2\nx:1\ny\n^\nz\n"])
def test_output_that_is_made_to_be_slow_to_search_is_searched_at_once(lines: str, end: str) -> None:
    node_failure(lines * (400_000 // len(lines)) + end)
