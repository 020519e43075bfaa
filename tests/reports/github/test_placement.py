"""A finding is annotated at its store if the diff shows it, else at the nearest line of its schedule in the diff."""

from __future__ import annotations

from dataclasses import replace

from crashcheck.change.diff import Diff, FileDiff
from crashcheck.checker.results import RESTORE, Edit, Fix, Frame
from crashcheck.reports.github.annotations import place
from support.reports.runs import KILLED, LEVEL_HASH, RECORD, VALID, with_fields

FILE = "src/level_hash.c"


def name(file: str) -> str:
    """As in a repository whose root is the project's folder."""
    return "" if file.startswith("/") else file


def diff(added: dict[str, set[int]], shown: dict[str, set[int]] | None = None) -> Diff:
    every = {file: lines | (shown or {}).get(file, set()) for file, lines in added.items()} | {
        file: lines for file, lines in (shown or {}).items() if file not in added
    }
    return Diff(
        {
            file: FileDiff(file, file, frozenset(added.get(file, set())), frozenset(), frozenset(lines))
            for file, lines in every.items()
        }
    )


def test_without_a_diff_the_store_is_annotated() -> None:
    placed = place(LEVEL_HASH, name)
    assert (placed.spot, placed.file, placed.line, placed.because) == ("store", FILE, 9, "")


def test_a_store_that_the_diff_shows_is_annotated_even_if_another_line_changed() -> None:
    placed = place(LEVEL_HASH, name, diff({FILE: {8}}, {FILE: {9, 10}}))
    assert (placed.spot, placed.line, placed.because) == ("store", 9, "")


def test_the_other_store_is_the_nearest_line_of_the_schedule() -> None:
    placed = place(LEVEL_HASH, name, diff({FILE: {7, 8, 12}}))
    assert (placed.spot, placed.file, placed.line) == ("schedule", FILE, 8)
    assert placed.because == (
        "The store is at src/level_hash.c:9 (`b->tokens[slot].valid = 1;`), which this change does not show; "
        "this line is the other store, the nearest one in the change."
    )


def test_a_line_that_the_change_touches_goes_before_one_that_it_only_shows() -> None:
    placed = place(LEVEL_HASH, name, diff({FILE: {10}}, {FILE: {8}}))
    assert (placed.spot, placed.line) == ("schedule", 10)
    assert "this line is the flush `clwb` of its crash schedule, the nearest" in placed.because


def test_a_step_goes_before_a_caller_and_a_caller_before_nothing() -> None:
    assert place(LEVEL_HASH, name, diff({FILE: {7}, "workload.c": {31}})).line == 7
    placed = place(LEVEL_HASH, name, diff({"workload.c": {31}}))
    assert (placed.spot, placed.file, placed.line) == ("schedule", "workload.c", 31)
    assert "this line leads to the store" in placed.because


def test_the_nearest_step_in_the_trace_is_taken() -> None:
    # Line 7 is two steps before the store, line 12 is five: an older operation's fence.
    assert place(LEVEL_HASH, name, diff({FILE: {7, 12}})).line == 7


def test_a_finding_of_which_the_diff_shows_nothing_is_in_the_summary_only() -> None:
    placed = place(LEVEL_HASH, name, diff({FILE: {100}, "README.md": {9}}))
    assert (placed.spot, placed.file, placed.line) == ("summary", FILE, 9)
    assert placed.because == f"The change touches no line of this failure. It changes README.md, {FILE}."
    many = place(LEVEL_HASH, name, diff({f"{letter}.c": {1} for letter in "abcde"}))
    assert many.because == "The change touches no line of this failure. It changes a.c, b.c, c.c and 2 more files."


def test_no_line_of_an_earlier_operation_is_annotated_nor_a_caller_that_is_only_shown() -> None:
    # Line 90 has a flush of the operation before; line 31 of the workload calls what stores.
    steps = LEVEL_HASH.evidence.schedule
    at = next(i for i, step in enumerate(steps) if step.what == "flush")
    older = replace(steps[at], location=replace(VALID, line=90))
    finding = with_fields(LEVEL_HASH, schedule=(*steps[:at], older, *steps[at + 1 :]))
    assert place(finding, name, diff({FILE: {90}})).spot == "summary"
    assert place(LEVEL_HASH, name, diff({}, {"workload.c": {31}})).spot == "summary"
    assert place(LEVEL_HASH, name, diff({"workload.c": {31}})).spot == "schedule"


def test_a_changed_header_is_named_with_the_two_cache_lines() -> None:
    placed = place(LEVEL_HASH, name, diff({"src/table.h": {4}}))
    assert placed.spot == "summary"
    assert placed.because == (
        "The change touches no line of this failure. It changes src/table.h, which may have moved a field to another "
        "cache line: `entry.value` is in cache line 42 and `token.valid` in cache line 40, and only updates of one "
        "cache line persist in order."
    )
    assert "cache line" not in place(KILLED, name, diff({"src/table.h": {4}})).because  # one cache line


def test_a_store_outside_the_repository_is_annotated_at_the_call_within_it() -> None:
    header = replace(
        VALID, file="/usr/include/lib.h", line=3, stack=(Frame("inner", "/usr/lib/x.c", 1), Frame("put", FILE, 5))
    )
    finding = with_fields(LEVEL_HASH, location=header, schedule=())
    placed = place(finding, name)
    assert (placed.spot, placed.file, placed.line) == ("store", FILE, 5)
    assert placed.because.startswith("The store is at /usr/include/lib.h:3 (")
    assert place(finding, name, diff({FILE: {5}})).spot == "store"


def test_a_finding_without_a_line_anywhere_is_in_the_summary_only() -> None:
    nowhere = replace(VALID, file="", line=0, stack=())
    bare = with_fields(RECORD, location=nowhere, schedule=())
    assert place(bare, name).spot == "summary"
    for change in (diff({FILE: {1}}), Diff()):
        placed = place(bare, name, change)
        assert (placed.spot, placed.file, placed.line) == ("summary", "", 0)
        assert placed.because.startswith("No source line is known of this failure.")


def test_an_update_that_was_not_reached_may_carry_the_annotation() -> None:
    placed = place(KILLED, name, diff({FILE: {8}}))
    assert (placed.spot, placed.line) == ("schedule", 8)


def test_a_deleted_line_that_explains_the_finding_is_annotated_where_it_was() -> None:
    fix = Fix(RESTORE, "put back `fence();`", (Edit("src/pm.h", 3, True, "    fence();"),))
    finding = replace(LEVEL_HASH, fix=fix)
    placed = place(finding, name, diff({}, {"src/pm.h": {2, 3, 4}}))
    assert (placed.spot, placed.file, placed.line) == ("schedule", "src/pm.h", 3)
    assert placed.because.endswith("it deletes the line here.")
    assert place(finding, name, diff({FILE: {9}}, {"src/pm.h": {3}})).spot == "store"


def test_names_follow_the_project_into_its_repository() -> None:
    placed = place(LEVEL_HASH, lambda file: f"db/{file}", diff({f"db/{FILE}": {9}, FILE: {7}}))
    assert (placed.spot, placed.file, placed.line) == ("store", f"db/{FILE}", 9)
