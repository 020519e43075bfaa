"""What a report shows of findings of the base and of the last run that are gone."""

from __future__ import annotations

from dataclasses import replace

from crashcheck.checker.results import Base, Earlier, FindingKind
from crashcheck.reports.formats import terminal
from crashcheck.reports.view.earlier import compared, fixed, not_seen
from crashcheck.reports.view.run_view import build_view
from support.reports.runs import run

BASE = Base("refs/remotes/origin/main", "e" * 40)
ONE = Earlier("ORD-1", FindingKind.ORDERING, "`a` can survive a crash without `b`", "fixed", 1, "a1b2c3d" + "0" * 33)
IMPOSSIBLE = replace(ONE, id="ORD-2", message="`c` is lost", executed=0)
GONE = replace(ONE, id="ORD-3", message="`d` is lost", fate="not-seen", executed=0, commit="")


def test_what_failed_in_the_last_run_is_listed_with_its_commit_and_what_became_of_it() -> None:
    result = replace(run(), again=(ONE, IMPOSSIBLE, GONE))
    assert compared(result) == (
        "Fixed, the crash that failed in a1b2c3d passes now: `a` can survive a crash without `b`",
        "Fixed, the crash that failed in a1b2c3d cannot happen any more: `c` is lost",
        "Not seen again since the last run, and not compared: `d` is lost",
    )
    assert "the crash that failed in a1b2c3d passes now: `a`" in terminal.render(build_view(result))


def test_a_bug_of_the_base_that_failed_in_the_last_run_too_is_listed_once() -> None:
    result = replace(run(), base=replace(BASE, earlier=(ONE,)), again=(ONE, GONE))
    assert [(where, one.id) for where, one in fixed(result)] == [("main", "ORD-1")]
    assert [(where, one.id) for where, one in not_seen(result)] == [("the last run", "ORD-3")]
    head, *rest = compared(result)
    assert head == "Compared with main (eeeeeeeeee): 0 introduced, 0 existing, 1 fixed."
    assert len(rest) == 2


def test_a_base_is_named_as_people_name_it() -> None:
    (first,) = compared(replace(run(), base=BASE))
    assert first == f"Compared with main ({'e' * 10}): 0 introduced, 0 existing, 0 fixed."
