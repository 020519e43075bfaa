"""Which boundaries are tried, and what is known of the undisturbed run's output without running more."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crashcheck.checker.execution.process import Ended
from crashcheck.checker.oracles.references import Printed, Tails, content_key, digest_key, spread

Drive = Callable[..., Any]
Example = Callable[..., str]
KEPT = 64


def ended(output: bytes) -> Ended:
    return Ended(0, False, "", output, False, 0.0, b"", b"", len(output))


def test_few_boundaries_are_all_tried_and_of_many_the_first_the_last_and_some_between() -> None:
    assert spread(0) == []
    assert spread(64) == list(range(1, 65))
    many = spread(2000)
    assert (len(many), many[0], many[-1]) == (18, 1, 2000)
    assert {b - a for a, b in pairwise(many)} <= {117, 118}


@given(st.lists(st.binary(max_size=6).map(lambda line: line.replace(b"\n", b"")), max_size=6), st.integers(1, 3))
def test_with_as_many_lines_for_each_operation_every_tail_is_known(lines: list[bytes], each: int) -> None:
    output = b"".join((line + b"\n") * each for line in lines)
    tails = Tails(ended(output), {}, KEPT, len(lines))
    for ordinal in range(len(lines) + 1):
        rest = b"".join((line + b"\n") * each for line in lines[ordinal:])
        expected = content_key(rest) if len(rest) <= KEPT else digest_key(content_key(rest))
        assert tails.key(ordinal) == (expected if lines else None)


def test_a_tail_is_compared_with_the_paths_masked_as_outputs_are() -> None:
    tails = Tails(ended(b"/a/pool\n/a/pool\n"), {"/a/pool": "{pool}"}, KEPT, 2)
    assert tails.key(1) == Printed.of(ended(b"/b/pool\n"), {"/b/pool": "{pool}"}).key


@pytest.mark.parametrize("output", [b"1\n2\n3\n", b"1\n2", b""])
def test_where_lines_do_not_tell_nothing_is_known_but_what_was_tried(output: bytes) -> None:
    tails = Tails(ended(output), {}, KEPT, 2)
    assert [tails.key(ordinal) for ordinal in range(3)] == [None, None, None]
    tails.agree(1, 1)
    assert [tails.key(ordinal) for ordinal in range(3)] == [None, content_key(output[1:]), None]


def test_a_boundary_that_does_not_agree_takes_the_others_back() -> None:
    tails = Tails(ended(b"1\n2\n3\n4\n"), {}, KEPT, 4)
    tails.agree(1, 2)
    assert tails.key(2) == content_key(b"3\n4\n")
    tails.agree(3, 4)
    assert [tails.key(ordinal) for ordinal in range(5)] == [
        None,
        content_key(b"2\n3\n4\n"),
        None,
        content_key(b"3\n4\n"),
        None,
    ]


QUERIES = [f"query {key}" for key in range(70)]


def test_a_bad_boundary_that_was_not_tried_first_is_reported_and_makes_no_finding(
    drive: Drive, example: Example
) -> None:
    """Only between the two updates does a clean reopen show, and no sample is there."""
    counts = "        static int updates;\n        updates += name[0] == 'u';\n"
    prints = "        if (name[0] == 'q' && updates == 1 && key == 1) printf(\"%d\\n\", updates);\n"
    source = example("fixed", answer=lambda old: counts + prints + old)
    operations = ["insert 1 11", *QUERIES[10:20], "update 1 12", "query 1", "update 1 13", *QUERIES[2:]]
    assert 12 not in spread(len(operations))
    ran = drive(source, operations)
    assert ran.exit_code == 2
    assert "[driver-not-reopenable]" in ran.stderr
    assert "after operation 12 (update 1 12)" in ran.stderr


def test_a_report_says_how_many_boundaries_were_tried(drive: Drive, example: Example) -> None:
    ran = drive(example("buggy"), ["insert 1 11", *QUERIES[10:20], "update 1 12", *QUERIES])
    assert ran.exit_code == 1
    (note,) = [text for text in ran.report["run"]["warnings"] if text.startswith("reopened with nothing crashed")]
    assert note.split(":")[0] == "reopened with nothing crashed after 20 of 82 operations"
