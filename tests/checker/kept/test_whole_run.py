"""The result of a whole run: kept exactly, and only where the next run of the same would have it, too."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from crashcheck.checker.fixes.source.unit_compiles import _named
from crashcheck.checker.kept.dependencies import Dependencies
from crashcheck.checker.kept.store import KeptImages
from crashcheck.checker.results import RunResult, StopReason
from crashcheck.stages import kept_run
from crashcheck.stages.kept_run import Kept, KeptRun
from support.reports.runs import FULL, LEVEL_HASH, LMDB

SOURCES, REMARKS = ("table.c",), ("crashcheck: a remark",)


@pytest.fixture
def whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KeptRun:
    """A run that used one file, which is older than it."""
    monkeypatch.setattr(kept_run, "database", lambda: tmp_path / "db")
    used = KeptRun(b"key", Dependencies(()))
    used.followed = {b"o/proc/self/maps\0s/\0"}
    used.remarks = REMARKS
    return used


def exhausted(**counts: int) -> RunResult:
    states: dict[str, Any] = {"flaky": 0, **counts}
    return replace(FULL, stop_reason=StopReason.EXHAUSTED, states=replace(FULL.states, **states))


def test_findings_and_counts_are_taken_over_exactly_whatever_is_in_them(whole: KeptRun) -> None:
    """Texts that are no Unicode, and counts that no machine word holds."""
    odd = replace(LEVEL_HASH, message="\udcff \0 é", replay="cc1-" + "a" * 70_000)
    result = replace(exhausted(feasible=10**376, explored=10**30, explored_runs=7), findings=(odd, LMDB))
    assert whole.keep(Kept(result, (), SOURCES), ()) == ""
    found = KeptRun(b"key", Dependencies(())).find()
    assert found is not None
    assert (found.remarks, found.sources) == (REMARKS, SOURCES)
    states = result.states
    assert found.result == replace(
        result,
        states=replace(
            states,
            executed=0,
            explored=0,
            explored_runs=0,
            reused=states.executed + states.explored + states.reused,
            reused_from=found.result.states.reused_from,
        ),
    )
    assert found.result.states.reused_from.endswith(" UTC")
    assert KeptRun(b"other", Dependencies(())).find() is None


@pytest.mark.parametrize("stop", [each for each in StopReason if each is not StopReason.EXHAUSTED])
def test_a_run_that_was_cut_short_is_not_kept(stop: StopReason, whole: KeptRun) -> None:
    assert whole.keep(Kept(replace(exhausted(), stop_reason=stop), (), SOURCES), ()) == ""
    assert whole.find() is None


def test_a_run_with_flaky_states_or_timeouts_is_not_kept(whole: KeptRun) -> None:
    whole.keep(Kept(exhausted(flaky=1), (), SOURCES), ())
    whole.timed_out = True
    whole.keep(Kept(exhausted(), (), SOURCES), ())
    assert whole.find() is None


def test_a_run_of_a_check_that_reads_a_clock_or_was_not_followed_is_not_kept(whole: KeptRun) -> None:
    kept = Kept(exhausted(), (), SOURCES)
    whole.followed.add(None)
    assert whole.keep(kept, ()) == ""
    whole.followed = {b"xit reads a clock\0"}
    assert whole.keep(kept, ()) == "the run as a whole is not kept for the next one: it reads a clock"
    assert whole.find() is None


def test_a_changed_source_is_seen(whole: KeptRun, tmp_path: Path) -> None:
    """One that the run reads by itself, and one that a compiler has read for a fix."""
    old = [Path(__file__), Path(kept_run.__file__)]
    whole.read.add(str(old[1]))
    assert whole.keep(Kept(exhausted(), (), SOURCES), [str(old[0])]) == ""
    ((_, listing, _),) = KeptImages(tmp_path / "db").listings(b"key")
    assert {f"o{path}" for path in old} <= set(listing)


def test_a_damaged_record_counts_as_none(whole: KeptRun, tmp_path: Path) -> None:
    whole.keep(Kept(exhausted(), (), SOURCES), ())
    store = KeptImages(tmp_path / "db")
    ((_, listing, state),) = store.listings(b"key")
    store.add_run(b"key", listing, state, b"damaged")
    store.close()
    assert whole.find() is None


def test_the_oldest_runs_are_removed_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crashcheck.checker.kept.store.MOST_RUNS", 3)
    store = KeptImages(tmp_path / "db")
    for number in range(5):
        store.add_run(b"%d" % number, (), b"state", b"%d" % number)
    kept = [[store.run(listing) for listing, _, _ in store.listings(b"%d" % number)] for number in range(5)]
    assert [bool(each) for each in kept] == [False, False, True, True, True]
    assert [each[0][1] for each in kept if each and each[0]] == [b"2", b"3", b"4"]
    store.close()


def test_files_that_a_compiler_has_read_are_those_of_its_rule(tmp_path: Path) -> None:
    rule = tmp_path / "rule"
    rule.write_text("unit: /a/one.c /a/with\\ space.h \\\n  rel.h /a/$$.h\n")
    assert _named(rule) == ["/a/one.c", "/a/with space.h", "rel.h", "/a/$.h"]
    assert _named(tmp_path / "none") == []
