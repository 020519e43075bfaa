"""Counts and sentences cannot be over-read, and text from a program cannot act."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from crashcheck.checker.results import COUNTED, NODE_RUN, TO_SETTLE, StateCounts, StopReason
from crashcheck.reports.view import sentences
from crashcheck.reports.view.numbers import bytes_text, digits, human, json_count, percent, seconds_text, superscript
from crashcheck.reports.view.run_view import build_view
from crashcheck.reports.view.text import block, line, reason, shorten, telling
from support.reports.runs import ALL, CLEAN, LEVEL_HASH, SOME, TRACE, UNCERTAIN, run


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"),
        (1234567, "1,234,567"),
        (9_999_999, "9,999,999"),
        (10_000_000, "10^7"),
        (12_345_678, "1.2×10^7"),
        (99_999_999, "10^8"),
        (3 * 10**12, "3×10^12"),
        (10**77, "10^77"),
        (10**77 - 1, "10^77"),
        (2**20000, "4×10^6020"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",  # pytest cannot print the greatest
)
def test_big_counts_are_shown_as_powers_of_ten(value: int, shown: str) -> None:
    assert human(value) == shown


def test_a_count_beyond_the_digits_that_python_prints_is_written_out_whole() -> None:
    assert digits(10**9000) == "1" + "0" * 9000
    assert digits(7 * 10**8000 + 3) == "7" + "0" * 7999 + "3"


def test_a_count_that_json_readers_would_round_becomes_a_string() -> None:
    assert json_count(2**53 - 1) == 9007199254740991
    assert json_count(2**53) == "9007199254740992"


@pytest.mark.parametrize(
    ("part", "whole", "shown"),
    [(0, 5, "0 %"), (5, 5, "100 %"), (1, 10**77, "< 0.1 %"), (10**77 - 1, 10**77, "99.9 %"), (0, 0, "100 %")],
)
def test_a_share_is_rounded_to_all_or_nothing_only_if_it_is(part: int, whole: int, shown: str) -> None:
    assert percent(part, whole) == shown


def test_units_are_spelled_out() -> None:
    assert [bytes_text(n) for n in (0, 1023, 1024, 5 * 2**30)] == ["0 B", "1023 B", "1.0 KiB", "5.0 GiB"]
    assert [seconds_text(n) for n in (0.04, 59.6, 185.0)] == ["0.0 s", "60 s", "3 min 05 s"]
    assert superscript("412 of 10^77") == "412 of 10⁷⁷"


def test_the_headline_is_the_first_bug_and_how_many_more_there_are() -> None:
    accepted = replace(LEVEL_HASH, suppressed="rebuilt at start")
    known = replace(LEVEL_HASH, new=False)
    other = replace(LEVEL_HASH, message="`b` may be lost")
    assert sentences.headline(run(LEVEL_HASH)) == LEVEL_HASH.message
    assert sentences.headline(run(LEVEL_HASH, other)) == f"{LEVEL_HASH.message}, and 1 more finding"
    assert sentences.headline(run(accepted, other, known)) == "`b` may be lost, and 2 more findings"
    for settled in (accepted, known):
        assert sentences.headline(run(settled)) == sentences.counted(run(settled))
    assert sentences.headline(CLEAN) == sentences.counted(CLEAN)


UNPROVED = replace(UNCERTAIN, states=26, uncertain=f"the trace is incomplete{TO_SETTLE}build z with crashcheck-cc")


def test_failures_that_are_not_proved_are_counted_in_the_headline_with_what_would_settle_them() -> None:
    assert sentences.headline(run(uncertain=(UNPROVED,))) == (
        "No verdict: 1 uncertain finding (26 failing states); all 412 feasible crash states checked. "
        "To settle it: build z with crashcheck-cc"
    )
    assert sentences.headline(run(LEVEL_HASH, uncertain=(UNPROVED,))) == (
        f"{LEVEL_HASH.message}, and 1 uncertain finding"
    )
    (caveat,) = sentences.caveats(run(uncertain=(UNPROVED,)))
    assert caveat.endswith("but the cause is not proved. To settle it: build z with crashcheck-cc.")


@pytest.mark.parametrize(("how", "word"), [({"new": False}, "known"), ({"suppressed": "rebuilt"}, "suppressed")])
def test_unproved_failures_that_are_known_or_suppressed_are_counted_and_leave_a_verdict(
    how: dict[str, Any], word: str
) -> None:
    settled = replace(UNPROVED, **how)
    assert sentences.headline(run(uncertain=(settled,))) == (
        f"1 uncertain finding (0 new, 1 {word}, 26 failing states); all 412 feasible crash states checked"
    )


@pytest.mark.parametrize(
    ("stop", "why"),
    [
        (StopReason.BUDGET_SECONDS, "the time budget ended first"),
        (StopReason.BUDGET_STATES, "the state budget ended first"),
        (StopReason.EXHAUSTED, "the strategy exhaustive plans none"),
    ],
)
def test_a_search_that_checked_nothing_has_no_verdict_and_says_why(stop: StopReason, why: str) -> None:
    nothing = replace(ALL, executed=0, pruned=0)
    assert sentences.headline(run(states=nothing, stop=stop)) == (
        f"No verdict: none of 412 feasible crash states was checked, because {why}"
    )


def test_states_that_were_not_counted_are_not_called_zero() -> None:
    nothing = replace(ALL, executed=0, pruned=0, feasible=0, feasible_exact=False, feasible_note="none was counted")
    result = run(states=nothing, stop=StopReason.BUDGET_SECONDS)
    assert sentences.headline(result) == (
        "No verdict: no feasible crash state was checked, because the time budget ended first"
    )
    assert build_view(result).counts[0].value == "unknown"


def test_a_search_that_tested_few_site_signatures_has_no_verdict_and_names_their_share() -> None:
    part = replace(SOME, failing=0, flaky=0, uncertain=0, signatures=50, signatures_tested=2)
    assert sentences.headline(run(states=part)) == (
        "No verdict: searched 4.0 %; no findings; 412 of 10^77 feasible crash states checked"
    )


def test_a_missing_order_names_both_stores() -> None:
    assert build_view(run(LEVEL_HASH)).findings[0].evidence.sentence == (
        "Nothing guarantees that `entry.value` (stored first) is durable before `token.valid`, "
        "so a crash can keep the second without the first."
    )
    unknown = replace(LEVEL_HASH, location=replace(LEVEL_HASH.location, variable="a`b"))
    assert build_view(run(unknown)).findings[0].evidence.sentence == sentences.KIND_SENTENCE[LEVEL_HASH.kind]


def test_no_findings_names_how_little_was_checked() -> None:
    part = replace(SOME, failing=0, flaky=0, uncertain=0)
    assert sentences.headline(run(states=part)) == "No findings; 412 of 10^77 feasible crash states checked"


def test_all_states_are_claimed_only_when_the_count_is_exact() -> None:
    assert sentences.headline(CLEAN) == "No findings; all 412 feasible crash states checked"
    bound = replace(ALL, feasible_exact=False, feasible_note="upper bound: equal bytes counted apart")
    assert sentences.headline(run(states=bound)) == "No findings; 412 of about 412 feasible crash states checked"
    orders = replace(bound, unit=NODE_RUN)
    assert sentences.headline(run(states=orders)) == f"No findings; 412 of at least 412 feasible {NODE_RUN}s checked"
    partly = replace(
        bound, feasible=3, executed=3, pruned=0, feasible_note=f"only those of the first 0 of 451 {COUNTED}"
    )
    assert sentences.checked(run(states=partly)) == "3 of an unknown number of feasible crash states checked"
    nothing = sentences.headline(run(states=replace(partly, executed=0), stop=StopReason.BUDGET_SECONDS))
    assert nothing.startswith("No verdict: none of an unknown number of feasible crash states was checked, because")
    assert sentences.caveats(run(states=bound)) == (
        "The number of feasible states is a bound: upper bound: equal bytes counted apart.",
    )


def test_states_are_listed_that_were_postponed_as_likely_hangs_and_not_those_under_way_when_the_budget_ended() -> None:
    cut = replace(ALL, executed=300, skipped=5)
    assert sentences.caveats(run(states=cut)) == ()
    (caveat,) = sentences.caveats(run(states=replace(cut, put_off=1)))
    assert caveat == (
        "1 state was postponed to the end and not checked: the check hangs on similar ones, or everything fails at "
        "that moment."
    )


def test_one_is_counted_in_the_singular() -> None:
    one = StateCounts(1, True, "", 1, 0, 0, 1, 0, 0)
    assert sentences.counted(run(LEVEL_HASH, states=one)) == "1 finding; the only feasible crash state checked"
    assert sentences.headline(run(states=one)) == "No findings; the only feasible crash state checked"


@pytest.mark.parametrize("stop", [stop for stop in StopReason if stop is not StopReason.EXHAUSTED])
def test_a_search_that_was_cut_short_reports_that_states_remain(stop: StopReason) -> None:
    assert sentences.stop_sentence(run(stop=stop)).endswith("; the remaining states were not checked.")


def test_a_search_to_its_end_names_what_it_planned() -> None:
    assert sentences.stop_sentence(CLEAN) == "Every feasible crash state was checked (identical images once)."
    assert sentences.stop_sentence(run(states=SOME)) == (
        "All 412 crash states that the strategy exhaustive plans were checked (identical images once)."
    )


def test_unexplained_bytes_are_a_caveat_with_their_share() -> None:
    caveats = sentences.caveats(run(trace=replace(TRACE, explained_bytes=90, unexplained_bytes=10)))
    assert caveats == (
        "10 of 100 changed bytes (10.0 %) are not accounted for by the trace: crash states never vary them.",
    )


def test_a_line_loses_escapes_controls_and_direction_overrides() -> None:
    assert line("a\x1b[31mb\x1b]0;title\x07c\x00d\u202ee\udcfff\ng\th") == "abc␀d\ufffde\ufffdf␊g h"


def test_ten_megabytes_become_one_short_line() -> None:
    shown = line("x" * 10_000_000 + "end", 50)
    assert len(shown) == 50
    assert shown.endswith("xend")
    assert "…" in shown


def test_shortening_keeps_both_ends() -> None:
    assert shorten("abcdefghij", 7) == "abcd…ij"
    assert shorten("abc", 3) == "abc"


def test_an_error_above_the_stack_of_its_runtime_is_shown() -> None:
    message = ("undefined:1", "", "", "SyntaxError: Unexpected end of JSON input")
    stack = tuple(f"    at Module._load (node:internal/modules/cjs/loader:{row})" for row in range(9))
    node = (*message, *stack, "", "Node.js v20.20.2")
    assert telling(node, 6) == ("… 12 lines left out …", message[0], message[3], node[-1])
    assert telling(node, len(node)) == node
    frames = (
        "goroutine 1 [running]:",
        *("db.(*DB).load(0xc00007e000?)", "\t/usr/share/gocode/src/db/db.go:316 +0x47"),
        *("db.Open({0x7fffffffe8a9, 0x3a}, 0x1a4?, 0x0)", "\t/usr/share/gocode/src/db/db.go:293 +0x48b"),
        *("main.main()", "\t/work/put.go:12 +0xa5"),
    )
    go = ("panic: page 4 already freed", "", *frames, "exit status 2")
    assert telling(go, 6) == ("… 8 lines left out …", go[0], go[-1])
    python = ("Traceback (most recent call last):", '  File "q.py", line 7, in <module>', "EOFError: Ran out of input")
    ignored = (
        "Exception ignored in: <function Queue.__del__ at 0x7ffff6f040e0>",
        *python[:2],
        "    ^^^^",
        "KeyError: 0",
    )
    assert telling((*python, *ignored), 6) == ("… 5 lines left out …", *python)
    rows = tuple(f"row {number}" for number in range(7))
    assert telling(rows, 6) == ("… 1 line left out …", *rows[1:])


def test_what_breaks_is_the_exception_below_a_traceback() -> None:
    trace = (
        "Traceback (most recent call last):",
        '  File "q.py", line 7, in <module>',
        "    read(x)",
        "EOFError: no input",
    )
    assert reason(trace) == "EOFError: no input"
    assert reason(trace[:1]) == trace[0]
    assert reason(("", "  7 records are lost", "x")) == "7 records are lost"
    assert reason(("",)) == ""


def test_a_block_keeps_its_end_and_counts_what_it_leaves_out() -> None:
    rows, left_out = block("\n".join(f"row {i}" for i in range(100)) + "\n\n", lines=9, columns=80)
    assert rows == (
        "row 0",
        "row 1",
        "row 2",
        "… 92 lines left out …",
        "row 95",
        "row 96",
        "row 97",
        "row 98",
        "row 99",
    )
    assert left_out == sum(len(f"row {i}\n") for i in range(3, 95))
