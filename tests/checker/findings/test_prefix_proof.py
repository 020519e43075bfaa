"""A moment at which the program may not be killed is proved on the real files of a second run, and only there."""

from __future__ import annotations

import contextlib
import json
import shlex
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from crashcheck.analyzer.trace.digests import Digests
from crashcheck.checker.budget import Left, endless
from crashcheck.checker.execution.process import Limits
from crashcheck.checker.findings.cause import Cause
from crashcheck.checker.findings.prefix_proof import (
    NO_SNAPSHOT,
    ON_OTHER_FILES,
    ON_REAL_FILES,
    OTHER_COURSE,
    SAME_COURSE,
    TRACE_ALL,
    DigestedRun,
    PrefixProof,
)
from crashcheck.checker.images.real_files import RealFiles
from crashcheck.checker.results import KILL_SHOWS_IT, TO_SETTLE
from crashcheck.checker.search.crash_states import SearchResult
from crashcheck.checker.verdicts.executor import Executor
from crashcheck.checker.verdicts.other_files import run_on_files
from crashcheck.runtime.record import DigestsAt
from support.checked_worlds import STEPS, World, two_steps, words
from support.command_line import run_crashcheck
from support.compilers import c_compiler
from support.tracing import TraceBuilder

HERE = Path(__file__).resolve().parent
CONFIG = """\
[build]
command = "{cc} -O1 -c untraced.c && crashcheck-cc -g -O1 {flags} -o prefix prefix.c untraced.o"
[workload]
command = "./prefix {{pool}}/p"
[pool]
files = ["p"]
[model]
name = "page-cache"
[check]
command = "./prefix {{pool}}/p check"
"""


def run(folder: Path, environment: dict[str, str], flags: str, *options: str) -> tuple[int, dict[str, Any]]:
    shutil.copy(HERE / "prefix.c", folder)
    (folder / "untraced.c").write_text("void untraced(unsigned long *p) { ++*(volatile unsigned long *)p; }\n")
    (folder / "crashcheck.toml").write_text(CONFIG.format(cc=shlex.join(c_compiler()), flags=flags), encoding="utf-8")
    words = ["run", "--no-fixes", "--format", "json=report.json", *options]
    done = run_crashcheck(*words, cwd=folder, env=environment)
    assert (folder / "report.json").exists(), done.stdout + done.stderr
    report: dict[str, Any] = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    return done.returncode, report


@pytest.mark.parametrize(
    "flags",
    ["", "-DTIME", "-DTHREAD -pthread"],
    ids=["a heap address", "the time", "how much another thread has done"],
)
def test_what_differs_from_run_to_run_is_no_reason_for_doubt(
    flags: str, tmp_path: Path, environment: dict[str, str]
) -> None:
    code, report = run(tmp_path, environment, flags)
    assert code == 1
    assert [(one["kind"], one["uncertain"]) for one in report["findings"] + report["uncertain"]] == [("atomicity", "")]
    assert KILL_SHOWS_IT in report["findings"][0]["note"]


def test_an_update_that_was_not_traced_is_never_behind_a_proof(tmp_path: Path, environment: dict[str, str]) -> None:
    code, report = run(tmp_path, environment, "-DUNTRACED")
    assert (code, report["findings"]) == (2, [])
    assert report["run"]["summary"].startswith("No verdict: 1 uncertain finding (")
    assert [one["uncertain"] for one in report["uncertain"]] == [f"{ON_REAL_FILES} passes{TO_SETTLE}{TRACE_ALL}"]


ROUNDS = "-DROUNDS -pthread"


def test_a_place_that_threads_keep_the_second_run_from_is_found_in_a_run_with_digests(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    code, report = run(tmp_path, environment, ROUNDS)
    assert code == 1
    assert [one["uncertain"] for one in report["uncertain"]] == []
    assert [one["kind"] for one in report["findings"]] == ["atomicity"]


def test_an_update_that_was_not_traced_is_behind_no_digest(tmp_path: Path, environment: dict[str, str]) -> None:
    code, report = run(tmp_path, environment, f"{ROUNDS} -DUNTRACED")
    assert (code, report["findings"]) == (2, [])
    assert report["run"]["trace"]["unexplained_bytes"] == 0
    assert {one["uncertain"] for one in report["uncertain"]} == {OTHER_COURSE}


@pytest.mark.parametrize(
    ("options", "ends"),
    [
        (("--fail-on", "none"), 0),
        (("--fail-on", "note"), 1),
        (("--baseline", "known.json", "--update-baseline"), 0),
        (("--budget", "0.001s"), 2),
    ],
)
def test_what_is_not_proved_ends_a_run_by_the_policy(
    options: tuple[str, ...], ends: int, tmp_path: Path, environment: dict[str, str]
) -> None:
    code, _ = run(tmp_path, environment, "-DUNTRACED", *options)
    assert code == ends


class Twin:
    """Two steps, of which the files after the first alone are wrong; and what a second run of it shows."""

    def __init__(self, folder: Path, clauses: Path, *claims: str) -> None:
        self.world = World(folder, words([str(clauses), "{pool}/p", "{acked}", *claims]), two_steps, sites=STEPS)

    def explore(self, files: bytes, **changes: object) -> SearchResult:
        def snapshot(seq: int) -> RealFiles:
            real = self.world.real_snapshot(seq)
            (real.folder / "p").write_bytes(files.ljust(4096, b"\0"))
            return replace(real, **changes)  # type: ignore[arg-type]

        return self.world.explore(snapshot=snapshot)


def word(value: int, at: int = 0) -> bytes:
    return bytes(at) + value.to_bytes(8, "little")


def test_real_files_on_which_the_check_fails_in_the_same_way_are_a_proof(tmp_path: Path, clauses: Path) -> None:
    found = Twin(tmp_path, clauses, "0=64").explore(word(99))
    assert [finding.note for finding in found.findings] == [KILL_SHOWS_IT]
    assert found.uncertain == ()


def test_a_hang_that_had_all_its_time_is_proved_by_one_run(
    tmp_path: Path, clauses: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = []
    run_on = Executor.run_on
    monkeypatch.setattr(Executor, "run_on", lambda *words: runs.append(words) or run_on(*words))
    twin = Twin(tmp_path, clauses, "~0=64")
    twin.world.limits = Limits(timeout_s=0.3)
    assert [finding.uncertain for finding in twin.explore(word(99)).findings] == [""]
    assert len(runs) == 1


@pytest.mark.parametrize(
    ("files", "how"),
    [
        (b"", "passes"),
        (word(7, 128), "fails in another way"),  # it dies
        (word(7, 256), "fails in another way"),  # it prints something else
        (word(7, 384), "hangs, perhaps on a lock in the files that the C library took"),
    ],
)
def test_real_files_on_which_it_does_not_are_none(files: bytes, how: str, tmp_path: Path, clauses: Path) -> None:
    twin = Twin(tmp_path, clauses, "!128=136", "~384=392", "256>264", "0=64")
    twin.world.limits = Limits(timeout_s=0.3)
    found = twin.explore(files)
    assert found.findings == ()
    assert [finding.uncertain for finding in found.uncertain] == [f"{ON_REAL_FILES} {how}{TO_SETTLE}{TRACE_ALL}"]


def test_files_of_another_place_in_the_program_are_no_proof(tmp_path: Path, clauses: Path) -> None:
    def elsewhere(t: TraceBuilder) -> None:
        two_steps(t)
        t.store("p", 512, 8, 1)

    def earlier(t: TraceBuilder) -> None:
        t.site = 9
        for _ in range(4):
            t.store("p", 512, 8, 1)
        two_steps(t)

    twin = Twin(tmp_path, clauses, "0=64")
    other = World(tmp_path / "other", twin.world.check, earlier, sites=STEPS)
    found = twin.explore(word(5), trace=other.trace)
    assert (found.findings, [finding.uncertain for finding in found.uncertain]) == ((), [OTHER_COURSE])
    later = World(tmp_path / "later", twin.world.check, elsewhere, sites=STEPS)
    assert len(twin.explore(word(5), trace=later.trace).findings) == 1


def test_a_run_with_other_updates_on_which_the_check_passes_does_not_show_that_the_trace_is_incomplete(
    tmp_path: Path, clauses: Path
) -> None:
    def longer(t: TraceBuilder) -> None:
        two_steps(t)
        t.store("p", 512, 8, 1)

    twin = Twin(tmp_path, clauses, "0=64")
    other = World(tmp_path / "other", twin.world.check, longer, sites=STEPS)
    found = twin.explore(b"", trace=other.trace)
    assert [finding.uncertain for finding in found.uncertain] == [f"{ON_OTHER_FILES} passes{TO_SETTLE}{SAME_COURSE}"]


def test_without_a_second_run_nothing_is_proved(tmp_path: Path, clauses: Path) -> None:
    twin = Twin(tmp_path, clauses, "0=64")
    found = twin.world.explore(snapshot=lambda seq: None)
    assert [finding.uncertain for finding in found.uncertain] == [NO_SNAPSHOT]


@contextlib.contextmanager
def unproved(
    folder: Path, clauses: Path, digested: Callable[[DigestsAt], DigestedRun | None], left: Left = endless
) -> Iterator[tuple[PrefixProof, Cause]]:
    """A failing prefix of a workload that can only be recorded again with digests."""
    world = Twin(folder, clauses, "0=64").world
    (found,) = world.explore(snapshot=lambda seq: None).uncertain
    with world.executor() as executor:
        proof = PrefixProof(
            world.subject,
            lambda seq: None,
            executor.images.write_image,
            partial(run_on_files, executor),
            digested,
            left,
        )
        state = world.subject.prefix(1)
        yield proof, Cause(found.kind, state, executor.run(state), 0, None, prefix=True, moment=1)


@pytest.mark.parametrize(("left_s", "asked"), [(None, 1), (60.0, 1), (0.0, 0)])
def test_a_further_run_is_recorded_only_while_the_search_has_time(
    left_s: float | None, asked: int, tmp_path: Path, clauses: Path
) -> None:
    runs: list[DigestsAt] = []
    with unproved(tmp_path, clauses, lambda at: runs.append(at), lambda: left_s) as (proof, cause):
        assert proof.missing(cause, tmp_path) == NO_SNAPSHOT
    assert len(runs) == asked


def test_digests_get_less_time_after_a_finding_that_they_did_not_prove(tmp_path: Path, clauses: Path) -> None:
    left_s = 100.0

    def record_for_five_seconds(at: DigestsAt) -> DigestedRun:
        nonlocal left_s
        left_s -= 5
        return DigestedRun(proof.subject, Digests(), proof.write_image, tmp_path, tmp_path)

    with unproved(tmp_path, clauses, record_for_five_seconds, lambda: left_s) as (proof, cause):
        took_s = []
        for _ in range(2):
            before_s = left_s
            assert proof.missing(cause, tmp_path) == NO_SNAPSHOT
            took_s.append(before_s - left_s)
    assert took_s == [25, 10]


def test_runs_with_digests_of_all_of_it_serve_each_finding_and_others_are_near_a_moment(
    tmp_path: Path, clauses: Path
) -> None:
    runs: list[DigestsAt] = []

    def record_without_digests(at: DigestsAt) -> DigestedRun:
        runs.append(at)
        return DigestedRun(proof.subject, Digests(), proof.write_image, tmp_path, tmp_path)

    with unproved(tmp_path, clauses, record_without_digests) as (proof, cause):
        first = [proof.missing(cause, tmp_path), *runs]
        runs.clear()
        later = [proof.missing(cause, tmp_path), *runs]
    near = DigestsAt(1, 0, int(proof.subject.trace.events["seq"][1]) + 64)
    every = DigestsAt(8)
    assert later == [NO_SNAPSHOT, near, near, near]
    assert first == [NO_SNAPSHOT, near, every, near, DigestsAt(1), near, every, every]
