"""A search whose runs were executed by shards finds what an undivided one finds, and executes almost nothing itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from crashcheck.checker.budget import Budget
from crashcheck.checker.execution.process import Ended, Limits
from crashcheck.checker.execution.tasks import Run
from crashcheck.checker.kept import runs_file
from crashcheck.checker.kept.keys import SearchKey
from crashcheck.checker.kept.runs_file import Batch, Header, RunsFile, Share, read_runs_file
from crashcheck.checker.kept.shards import ALONE, Exchange, KnownRuns, merged
from crashcheck.checker.search.crash_states import SearchResult
from crashcheck.checker.states.space import CrashState
from crashcheck.checker.strategies import Exhaustive, Pathfinder, Ranked, Strategy
from crashcheck.checker.verdicts.executor import Executor
from crashcheck.errors import CrashcheckError
from support.checked_worlds import LINES, VALID, VALUE, World, put_flag_first, without_times, words, world_of_lines

KEY = SearchKey(b"recording", b"check", b"search")


def search(
    world: World, exchange: Exchange = ALONE, strategy: Strategy | None = None, budget: Budget | None = None
) -> SearchResult:
    with world.executor(2) as executor:
        return world.search(executor, strategy=strategy or Ranked(), budget=budget, explore=True, exchange=exchange)


def shard_of(world: World, share: Share, strategy: Strategy | None = None, budget: Budget | None = None) -> Batch:
    path = world.folder / f"shard-{share.index}"
    found = search(world, Exchange(share=share, noted=RunsFile(path, Header(KEY, share))), strategy, budget)
    assert found.findings == ()
    return read_runs_file(path).all


def merging(*parts: Batch) -> Exchange:
    return Exchange(KnownRuns(parts))


@pytest.fixture
def executed(monkeypatch: pytest.MonkeyPatch) -> list[CrashState]:
    """The states that searches have executed in their turn, from now on."""
    states: list[CrashState] = []
    submit = Executor.submit

    def noting(self: Executor, state: CrashState) -> int:
        states.append(state)
        return submit(self, state)

    monkeypatch.setattr(Executor, "submit", noting)
    return states


@pytest.mark.parametrize("of", [1, 3])
@pytest.mark.parametrize("strategy", [Ranked(), Exhaustive(), Pathfinder(None)])
@pytest.mark.parametrize(
    "claims", [("0=0", "320=320"), (f"{64 * LINES}>{64 * LINES - 64}", f"{64 * LINES}>0")], ids=["fixed", "buggy"]
)
def test_merged_shards_find_what_one_search_finds_and_nothing_is_executed_twice(
    of: int,
    strategy: Strategy,
    claims: tuple[str, ...],
    tmp_path: Path,
    mapped_clauses: Path,
    executed: list[CrashState],
) -> None:
    world = world_of_lines(tmp_path / "w", mapped_clauses, *claims, rounds=2)
    whole = search(world, strategy=strategy)
    assert bool(whole.findings) == (claims[0] != "0=0")
    assert bool(whole.states.explored) != isinstance(strategy, Pathfinder)
    executed.clear()
    parts = [shard_of(world, Share(index, of), strategy) for index in range(1, of + 1)]
    assert len(executed) == sum(len(part.runs) for part in parts) == whole.states.executed
    executed.clear()
    assert without_times(search(world, merging(*parts), strategy)) == without_times(whole)
    assert executed == []


def test_what_a_missing_shard_would_have_executed_is_executed_by_the_search_that_merges(
    tmp_path: Path, clauses: Path, executed: list[CrashState]
) -> None:
    check = words([str(clauses), "{pool}/p", "{acked}", "64>0", "320>256"])
    world = World(tmp_path / "w", check, put_flag_first, sites={1: VALUE, 2: VALID})
    whole = search(world)
    parts = [shard_of(world, Share(index, 3)) for index in (1, 3)]
    executed.clear()
    assert without_times(search(world, merging(*parts))) == without_times(whole)
    assert len(executed) == whole.states.executed - len(parts[0].runs) - len(parts[1].runs) > 0


def test_shards_with_a_budget_of_states_cover_it_together(
    tmp_path: Path, mapped_clauses: Path, executed: list[CrashState]
) -> None:
    world = world_of_lines(tmp_path / "w", mapped_clauses, "0=0", rounds=4)
    budget = Budget(states=40)
    whole = search(world, budget=budget)
    parts = [shard_of(world, Share(index, 2), budget=budget) for index in (1, 2)]
    assert sum(len(part.runs) for part in parts) == 40
    executed.clear()
    assert without_times(search(world, merging(*parts), budget=budget)) == without_times(whole)
    assert executed == []


def test_what_shards_have_executed_is_looked_at_before_what_they_had_no_time_for(
    tmp_path: Path, clauses: Path, executed: list[CrashState]
) -> None:
    world = World(tmp_path / "w", words([str(clauses), "{pool}/p", "{acked}", "0=0"]), put_flag_first)
    whole = search(world, strategy=Exhaustive())
    part = shard_of(world, Share(1, 2), Exhaustive())
    executed.clear()
    taken: list[int] = []
    cut_short = merging(msgspec.structs.replace(part, complete=False))
    with world.executor() as executor:
        found = world.search(
            executor,
            strategy=Exhaustive(),
            exchange=cut_short,
            progress=lambda progress: taken.append(len(executed)),
        )
    assert found.states.executed == whole.states.executed
    assert len(executed) == whole.states.executed - len(part.runs)
    assert taken[0] == 0


def test_similar_states_of_a_shard_wait_after_one_that_hangs(tmp_path: Path, executed: list[CrashState]) -> None:
    hangs = World(
        tmp_path / "w", words(["sleep", "1000"]), lambda t: put_flag_first(t, 1), limits=Limits(timeout_s=0.2)
    )
    part = shard_of(hangs, Share(1, 1), Exhaustive())
    assert len(part.runs) == len(executed)
    assert all(ended.timed_out for ended, _ in part.runs.values())


@pytest.fixture
def files(tmp_path: Path) -> Callable[..., list[Path]]:
    """Writes files of shards, without a run in them."""

    def write(*parts: tuple[Header, bool]) -> list[Path]:
        paths = [tmp_path / f"{number}.crashcheck" for number, _ in enumerate(parts)]
        for path, (header, complete) in zip(paths, parts, strict=True):
            RunsFile(path, header).close(complete)
        return paths

    return write


def empty(index: int, of: int, key: SearchKey = KEY, complete: bool = True) -> tuple[Header, bool]:
    return Header(key, Share(index, of)), complete


def test_missing_and_incomplete_shards_are_named(files: Callable[..., list[Path]]) -> None:
    known, remarks = merged(files(empty(3, 4), empty(1, 4, complete=False)), KEY)
    assert not known.complete
    assert remarks == (
        "shard 2/4 is missing: its crash states are executed here",
        "shard 4/4 is missing: its crash states are executed here",
        "shard 1/4 ended before its crash states did: those left are executed here",
    )


@pytest.mark.parametrize("what", ["recording", "check", "search"])
def test_shards_of_something_else_are_refused(what: str, files: Callable[..., list[Path]]) -> None:
    other = msgspec.structs.replace(KEY, **{what: b"other"})
    paths = files(empty(1, 2), empty(2, 2, other))
    with pytest.raises(CrashcheckError, match=f"1.crashcheck .* another {what}") as error:
        merged(paths, KEY)
    assert error.value.slug == "shards-differ"


def test_shards_of_two_divisions_are_refused(files: Callable[..., list[Path]]) -> None:
    with pytest.raises(CrashcheckError, match="is one of 3 shards, and the first file one of 2"):
        merged(files(empty(1, 2), empty(2, 3)), KEY)


def test_a_file_that_no_shard_wrote_is_refused(tmp_path: Path, files: Callable[..., list[Path]]) -> None:
    (path,) = files(empty(1, 2))
    data = path.read_bytes()
    (newer,) = files((Header(KEY, Share(1, 2), format=runs_file._FORMAT + 1), True))
    for damaged in (data[:8], b"", b"text", newer.read_bytes()):
        path.write_bytes(damaged)
        with pytest.raises(CrashcheckError) as error:
            read_runs_file(path)
        assert error.value.slug == "shard-unreadable"
    with pytest.raises(CrashcheckError) as error:
        read_runs_file(tmp_path / "nowhere")
    assert error.value.slug == "shard-unreadable"
    (undivided,) = files((Header(KEY), True))
    with pytest.raises(CrashcheckError, match="a search that was not divided"):
        merged([undivided], KEY)


def test_a_file_that_ends_anywhere_holds_the_batches_before_that(tmp_path: Path) -> None:
    path = tmp_path / "runs"
    noted = RunsFile(path, Header(KEY))
    ends = [path.stat().st_size]
    for number in range(3):
        for each in range(runs_file._BATCH):
            noted.add(b"%d %d" % (number, each), Run(0, Ended(0, False, "", b"", False, 0.0), {"/w": "{pool}"}))
        ends.append(path.stat().st_size)
    noted.close(complete=True)
    data = path.read_bytes()
    for size in [*ends, *(end + 1 for end in ends), *(end - 1 for end in ends[1:]), len(data)]:
        path.write_bytes(data[:size])
        found = read_runs_file(path).all
        assert len(found.runs) == runs_file._BATCH * (sum(end <= size for end in ends) - 1)
        assert found.complete == (size == len(data))
    path.write_bytes(data[:-5] + b"\0" * 5)  # what a power failure may leave
    assert not read_runs_file(path).all.complete


@pytest.mark.parametrize("explore", [True, False])
@pytest.mark.parametrize(
    "claims", [("0=0", "320=320"), (f"{64 * LINES}>{64 * LINES - 64}", f"{64 * LINES}>0")], ids=["fixed", "buggy"]
)
def test_a_search_that_is_resumed_executes_what_did_not_pass_before(
    claims: tuple[str, ...], explore: bool, tmp_path: Path, mapped_clauses: Path, executed: list[CrashState]
) -> None:
    world = world_of_lines(tmp_path / "w", mapped_clauses, *claims, rounds=4)

    def searched(exchange: Exchange, states: int | None = None) -> SearchResult:
        budget = Budget(states=states)
        with world.executor(2) as executor:
            return world.search(executor, strategy=Exhaustive(), budget=budget, explore=explore, exchange=exchange)

    whole = searched(ALONE)
    searched(Exchange(noted=RunsFile(tmp_path / "runs", Header(KEY))), 100)
    first = read_runs_file(tmp_path / "runs").all
    passed = sum(ended.status == 0 for ended, _ in first.runs.values())
    assert passed > 0
    executed.clear()
    again = RunsFile(tmp_path / "runs", Header(KEY), first)
    resumed = searched(Exchange(KnownRuns([first], "yesterday"), noted=again))
    assert [finding.id for finding in resumed.findings] == [finding.id for finding in whole.findings]
    assert bool(resumed.findings) == (claims[0] != "0=0")
    assert resumed.states.reused_from == "yesterday"
    decided = [each.executed + each.explored + each.reused for each in (whole.states, resumed.states)]
    assert decided[0] == decided[1]
    assert resumed.states.reused >= passed
    if not explore:
        assert resumed.states.reused == passed
    if not explore and not resumed.findings:  # what explaining has run is not executed once more in its turn
        assert len(executed) == whole.states.executed - len(first.runs)
        assert len(read_runs_file(tmp_path / "runs").all.runs) == whole.states.executed


def test_nothing_is_written_after_an_error_and_the_search_goes_on(tmp_path: Path, clauses: Path) -> None:
    world = World(tmp_path / "w", words([str(clauses), "{pool}/p", "{acked}", "0=0"]), put_flag_first)
    found = search(world, Exchange(noted=RunsFile(tmp_path / "nowhere" / "runs", Header(KEY))))
    assert found.states.executed
    path = tmp_path / "nowhere" / "runs"
    assert f"--resume cannot continue this run: {path} cannot be written: No such file or directory" in found.warnings
