"""The evaluation: counted states are those of brute force, and the page shows nothing but its measurements."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import tempfile
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from bench.papers import __main__ as command
from bench.papers import collect, correlated, curves, page, parts, pmemcheck_log, reorderings
from bench.papers.__main__ import PAGE, PARTS_FILE
from bench.papers.collect import First, Measured, Watching
from bench.papers.parts import calls, coverage, executions, invariants, left_out, pmreorder
from bench.papers.parts.calls import STRATEGIES as WAYS
from bench.papers.parts.every import PARTS
from bench.papers.parts.executions import Executions
from bench.papers.parts.left_out import LeftOut
from bench.papers.variants import variants
from bench.programs import CHECKOUT
from bench.recall import STRATEGIES, planted
from hypothesis import given
from hypothesis import strategies as st

from crashcheck.checker.budget import Budget
from crashcheck.checker.results import StopReason
from crashcheck.checker.states.canonical import CanonicalStates
from crashcheck.checker.states.counting import count_states
from crashcheck.checker.strategies import Ranked, strategy
from crashcheck.checker.strategies.plan import select_states
from support.compilers import needs_plain_clang
from support.random_runs import SETTINGS, Step, runs, script_of
from support.scripts import A, B, Script, space_of


def test_searches_that_rank_equally_rank_once_and_choose_the_same_states(tmp_path: Path) -> None:
    script = Script(tmp_path, A, B)
    for number, offset in ((1, 0), (2, 64), (1, 128)):
        script.at(number, offset)
    space = space_of(script)
    apart = list(select_states(space, Ranked(seed=3)))
    with collect.ranking_once(), patch.object(collect, "ranking_of", wraps=collect.ranking_of) as ranking:
        together = [list(select_states(space, Ranked(seed=3))) for _ in range(2)]
    assert ranking.call_count == 1
    assert together == [apart, apart]


@SETTINGS
@given(steps=runs(), chosen=st.sets(st.integers(0, 12), max_size=3))
def test_correlated_states_are_counted_as_if_each_were_listed(steps: list[Step], chosen: set[int]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        space = space_of(script_of(Path(folder), steps))
        culprits = [piece for piece in chosen if piece < len(space.graph)]
        states = list(select_states(space, strategy("exhaustive")))
        listed = correlated.of_states(space, states, culprits)
        counted = correlated.of_all(space, culprits)
        assert counted == listed
        assert counted.total == count_states(space).value
        acked = Counter(space.points[state.point].acked for state in states)
        assert correlated.all_by_operation(space) == [acked[operation] for operation in range(max(acked) + 1)]
        assert correlated.by_operation(space, states) == correlated.all_by_operation(space)


@pytest.mark.parametrize("stores", range(6))
def test_pmreorder_tries_every_order_of_every_subset(stores: int) -> None:
    tried = sum(1 for chosen in range(stores + 1) for _ in permutations(range(stores), chosen))
    assert reorderings.sequences(stores) == (tried if stores else 0)


def test_only_what_was_flushed_before_a_fence_is_reordered(tmp_path: Path) -> None:
    script = Script(tmp_path, A, B)
    script.trace.begin(1)
    script.at(1, 0)
    script.at(2, 64)
    script.at(1, 128)  # never flushed
    script.persist(0, 128)
    script.trace.end(1)
    script.trace.begin(2)
    script.at(1, 192)
    script.persist(192)
    script.trace.end(2)
    assert reorderings.by_operation(space_of(script).graph.trace, 3) == [5, 2, 0]


def test_the_page_is_what_its_figures_give(tmp_path: Path) -> None:
    page.write(page.read(PAGE.with_suffix(".json")), parts.read(PARTS_FILE), tmp_path / PAGE.name)
    written = sorted(path.name for path in tmp_path.iterdir())
    assert written == sorted([PAGE.name, *(path.name for path in PAGE.parent.glob("evaluation-*.svg"))])
    for name in written:
        assert (tmp_path / name).read_text() == PAGE.with_name(name).read_text()


def test_the_readme_gives_figures_of_the_page() -> None:
    planted = [one for one in page.read(PAGE.with_suffix(".json")).bugs if one.bug]
    states = [one.strategies["ranked"].states or 0 for one in planted]
    assert min(states) > 0  # all were found
    text = " ".join((CHECKOUT / "README.md").read_text().split())
    assert len({one.program for one in planted}) == 8
    assert f"Of the {len(planted)} bugs planted in eight persistent structures, the default search found all" in text
    assert f"half of them within {statistics.median(states):g} crash states" in text


def test_each_variant_differs_from_the_search_in_one_thing_and_has_a_name_of_its_own() -> None:
    base = Ranked()
    made = list(variants(base, weights=True))
    assert len({variant.name for variant in made}) == len(made)
    differing = ("infer", "weights", "seed", "similar_wait", "scores")
    for variant in made:
        name, _, seed = variant.name.partition(", seed ")
        changed = [name for name in differing if getattr(variant.strategy, name) != getattr(base, name)]
        assert len(changed) == (name != "without invariants") + bool(seed)
        assert not seed or (variant.strategy.seed == int(seed) and f"seed {seed}" in {each.name for each in made})


def measured(bug: int, found: int | None) -> Measured:
    one = Measured("tree", bug, "ordering" if bug else "", "The root is linked too early.", 100, "1000", True)
    if not bug:
        one.operations = {name: ["1", "20", "3"] for name in curves.SPACES}
        return one
    one.strategies = {name: First(found, 1.0, found or 30, "" if found else "exhausted") for name in STRATEGIES}
    one.variants = {"search": {"ranked": First(found, 1.0)}, "seed": {"seed 2": First(found and found + 2, 1.0)}}
    one.variants["part"] = {"without groups": First(None, 1.0), "without groups, seed 2": First(found, 1.0)}
    one.representatives = {"states": 10, "all": True, "correlated": 2, "exhaustive": str(10**40)}
    one.representatives |= {"exhaustive_correlated": "500", "exhaustive_exact": True}
    return one


def test_the_page_shows_what_was_measured_and_names_what_was_missed(tmp_path: Path) -> None:
    report = page.Report(
        200, "2,000 executed states", page.machine(), [measured(0, None), measured(1, 7), measured(2, None)]
    )
    page.write(report, {}, tmp_path / "evaluation.md")
    text = (tmp_path / "evaluation.md").read_text()
    assert "| ranked | 1 of 2" not in text  # the number alone, the header has the total
    assert "| ranked | 1 | – | 0.496 | 2 |" in text
    assert "| tree | 2.0×10^40 | 20 | 1,000 | 4 | 1.0×10^39 |" in text
    assert "| without groups | 1 of 4 | – | – | 0.248 | -0.248 |" in text
    assert "with 2 seeds of the random phase each" in text
    assert "but not by a variant: tree 1." in text
    missed = ", ".join(f"{name} (all 30)" for name in STRATEGIES)
    assert f"| tree 2 | ordering | {missed} |" in text
    for picture in ("evaluation-bugs.svg", "evaluation-seconds.svg", "evaluation-space.svg"):
        assert picture in text
        assert (tmp_path / picture).read_text().startswith("<svg")
    for part in PARTS:
        assert f"## {part.title}\n\nNot measured." in text


def counts(of: dict[str, dict[str, First]]) -> dict[str, dict[str, tuple[int | None, int, str]]]:
    return {
        name: {each: (first.states, first.executed, first.ended) for each, first in firsts.items()}
        for name, firsts in of.items()
    }


@pytest.mark.slow
@pytest.mark.parametrize(("program", "number"), [("level-hash", 4), ("crit-bit-tree", 7), ("b-tree", 4)])
def test_recalled_verdicts_give_the_counts_of_runs(
    program: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (bug,) = (bug for bug in planted() if (bug.program, bug.number) == (program, number))
    monkeypatch.setattr(collect, "_MOST_S", None)  # only states end a search
    recalled = collect.measure(bug, 60, 400)
    monkeypatch.setattr(Watching, "recall", Watching.forget)
    monkeypatch.setattr(collect, "patch", SimpleNamespace(object=lambda *replaced: nullcontext()))
    executed = collect.measure(bug, 60, 400)
    assert counts({"": recalled.strategies, **recalled.variants}) == counts(
        {"": executed.strategies, **executed.variants}
    )


def test_a_part_is_kept_beside_the_others_and_measured_again_alone(tmp_path: Path) -> None:
    file, machine = tmp_path / "parts.json", page.machine()
    first = Executions("tree", 1, str(10**20), 7, 5, "2", 9, 1, "0")
    parts.keep(file, "executions", machine, [first])
    parts.keep(file, "calls", machine, [])
    again = Executions("tree", 1, "30", 7, 5, "2", 9, 1, "0")
    parts.keep(file, "executions", machine, [first, again])
    known = parts.read(file)
    assert sorted(known) == ["calls", "executions"]
    (part,) = (part for part in PARTS if part.name == "executions")
    assert part.rows(known["executions"]) == [first, again]
    assert "| tree | 1.0×10^20 · 30 | 7 · 7 | 5 · 5 | 9 · 9 |" in list(part.section([first, again]))


def test_images_that_violate_an_invariant_are_run_up_to_a_bound_that_the_table_names(tmp_path: Path) -> None:
    (bug,) = (bug for bug in planted() if (bug.program, bug.number) == ("crit-bit-tree", 1))
    short = invariants.measured(bug, tmp_path / "short", 10, 30)
    assert 0 < short.mismatches <= short.images <= short.selected < invariants.SELECTED
    assert short.ended == StopReason.BUDGET_STATES
    assert 0 < short.findings <= short.clusters <= short.mismatches
    long = replace(short, operations=20, selected=invariants.SELECTED, images=4000, ended=StopReason.BUDGET_SECONDS)
    many = f"≥ {short.selected + invariants.SELECTED:,}"
    rows = list(
        invariants.PART.section([short, long, replace(short, bug=4, operations=20, ended=StopReason.EXHAUSTED)])
    )
    shown = f"| {short.selected} · {many} | {short.images} · {short.images + 4000:,} |"
    (row,) = (line for line in rows if line.startswith("| crit-bit-tree | 2 |"))
    assert shown in row
    assert row.endswith(f"| {short.seconds:.1f} · {2 * short.seconds:.1f} | 1 · 1 |")
    assert rows[-1].endswith("seconds instead: crit-bit-tree 1.")


def test_a_flush_left_out_is_compared_with_the_ranked_search_only_if_its_absence_shows() -> None:
    rows = [
        LeftOut("tree", "tree.c:1", 9, {"ranked": 5, "without groups": 31, "random": None}),
        LeftOut("tree", "tree.c:2", 9, {"ranked": 8, "without groups": 6, "random": 8}),
        LeftOut("tree", "tree.c:3", 1, {"ranked": None, "without groups": None, "random": None}),
        LeftOut("tree", "tree.c:4", 1, {"ranked": None, "without groups": None, "random": 40}),
    ]
    lines = list(left_out.PART.section(rows))
    assert lines[0].startswith("| search | found (3) | median states |")
    assert lines[2:5] == [
        "| ranked | 2 | 8 |  |  |",
        "| without groups | 2 | 31 | 1 | 1 |",
        "| random | 2 | 40 | 1 | 1 |",
    ]
    assert any("3 of these 4 flushes" in line for line in lines)


@pytest.mark.slow
def test_one_execution_of_a_flush_is_left_out_and_found(tmp_path: Path) -> None:
    (bug,) = (bug for bug in planted() if (bug.program, bug.number) == ("radix-tree", 0))
    rows = list(left_out.measured(bug, tmp_path, 20, 4, 30))
    assert len({row.place for row in rows}) == 4
    found = [row for row in rows if any(row.ways.values())]
    assert {row.place for row in found} >= {"radix_tree.c:110"}  # a leaf's content
    for row in rows:
        assert (len(row.ways) > 3) == (row in found)


def test_an_interrupted_search_ends_the_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    result = SimpleNamespace(stop_reason=StopReason.INTERRUPTED)
    monkeypatch.setattr(collect, "search_of", lambda *_, **__: SimpleNamespace(run=lambda: result))
    nothing: Any = SimpleNamespace(settle=lambda: None)
    bench = collect.Bench(nothing, nothing, nothing, nothing, Path(), Budget())
    for search in (bench.to_the_end, bench.until_first):
        with pytest.raises(KeyboardInterrupt):
            search(Ranked())


def test_the_page_is_written_even_if_a_part_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for file in (PAGE.with_suffix(".json"), PARTS_FILE):
        shutil.copy(file, tmp_path)
    broken = replace(executions.PART, measure=lambda: iter([1 // 0]))
    monkeypatch.setattr(command, "PARTS", (broken,))
    monkeypatch.setattr(command, "PAGE", tmp_path / PAGE.name)
    monkeypatch.setattr(command, "PARTS_FILE", tmp_path / PARTS_FILE.name)
    monkeypatch.setattr("sys.argv", ["bench.papers", "--part", broken.name])
    with pytest.raises(ZeroDivisionError):
        command.main()
    assert (tmp_path / PAGE.name).read_text() == PAGE.read_text()


def test_executions_are_runs_that_never_continue_as_one(tmp_path: Path) -> None:
    (bug,) = (bug for bug in planted() if (bug.program, bug.number) == ("red-black-tree", 0))
    row = executions.measured(bug, tmp_path, 1)
    assert 0 < row.merged <= row.jaaru < int(row.feasible)
    assert row.left == "0"
    assert 0 < row.explored < row.ours


def test_checks_of_crash_states_reach_lines_that_no_workload_reaches(tmp_path: Path) -> None:
    needs_plain_clang("llvm-cov", "llvm-profdata", flags=("-fprofile-instr-generate",))
    (bug,) = (bug for bug in planted() if (bug.program, bug.number) == ("red-black-tree", 0))
    row = coverage.measured(bug, tmp_path, 1, (1, 10))
    for first, last in row.reached.values():
        assert 0 < row.workload <= first <= last < row.lines
    assert row.workload < row.reached["ranked"][-1]
    assert len(row.missing) <= row.lines - row.reached["ranked"][-1]
    page_of = "\n".join(coverage.PART.section([row]))
    assert f"| red-black-tree | {row.lines} | {row.workload} | ranked |" in page_of
    assert "red-black-tree" in coverage.pictures([row])[coverage.PICTURE]


def test_findings_that_differ_in_sizes_alone_are_one_bug_of_a_store() -> None:
    text = "the size {} of a can survive a crash without {} bytes at offset {} of a"
    ways = {name: calls.Way(10, 10, 3, {text.format(5, 5, "0x0"): 7, text.format(9, 4, "0x5"): 3}) for name in WAYS}
    lines = list(calls.PART.section([calls.Searched("a store", "ext4", 4, "30", ways)]))
    assert "| a store | ext4 | 4 | 30 | 10 | 10 | 3 · 1 | 3 · 1 | 3 · 1 | 3 · 1 |" in lines


def test_a_line_has_a_later_store_only_with_the_earlier_ones() -> None:
    log = pmemcheck_log.stores_of(
        "==1== START|REGISTER_FILE;/pool;0x1000;0x40000;0x0|STORE;0x1000;0x1;0x8|STORE;0x1008;0x2;0x8"
        "|STORE;0x1040;0x3;0x8|FLUSH;0x1000;0x40|FENCE|operation.BEGIN|operation.END"
        "|STORE;0x1000;0x5;0x8\n==1== |STOP\n==1== Number of stores not made persistent: 2"
    )
    lines = pmemcheck_log.CacheLines(log, 256 << 10)

    def image(**words: int) -> bytes:
        pool = bytearray(256 << 10)
        for at, value in words.items():
            pool[int(at[1:])] = value
        return bytes(pool)

    assert lines.can_hold(image(), 0)
    assert lines.can_hold(image(a0=1), 0)
    assert lines.can_hold(image(a0=1, a8=2, a64=3), 0)
    assert not lines.can_hold(image(a8=2), 0)
    assert lines.can_hold(image(a0=1, a8=2), 1)  # its flush and fence were before the operation's end
    assert lines.can_hold(image(a0=5, a8=2, a64=3), 1)
    assert not lines.can_hold(image(a0=1), 1)


def test_pmreorders_check_takes_what_was_done_or_not_and_keeps_what_fails(tmp_path: Path) -> None:
    needs_plain_clang()
    pmreorder.compile_check(tmp_path / "check")
    driver, pool = tmp_path / "driver", tmp_path / "pool"
    driver.write_text('#!/bin/sh\ncat "$1" "$2"\n')
    driver.chmod(0o755)
    for name, text in {"1.rest": "rest", "1.done": "newrest", "1.undone": "oldrest"}.items():
        (tmp_path / name).write_text(text)
    for content, status in (("old", 0), ("torn", 1), ("new", 0)):
        pool.write_text(content)
        env = {**os.environ, "PMREORDER_MARKERS": "operation.BEGIN|operation.END|operation.BEGIN"}
        assert subprocess.run([tmp_path / "check", driver, tmp_path, pool], env=env).returncode == status
    assert (tmp_path / "checked").read_text() == ".x."
    assert (tmp_path / "1-1.failed").read_text() == "torn"


@SETTINGS
@given(steps=runs())
def test_alice_tries_each_prefix_and_each_prefix_without_one_update(steps: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        space = space_of(script_of(Path(folder), steps))
        tried = list(calls.alice_states(space))
        assert len(set(tried)) == len(tried)
        images = {(space.points[state.point].acked, frozenset(space.lost(state))) for state in tried}
        for point in range(len(space.points)):
            acked, pending = space.points[point].acked, space.pending(point)
            for one in pending:
                alone = space.lost(space.drop(point, [one])) == (one,)
                named = CanonicalStates(space).without(point, [one])
                assert ((space.points[named.point].acked, frozenset(space.lost(named))) in images) >= alone
            assert (acked, frozenset()) in images or not pending
