"""Nothing that happens to a thread in the midst of an access lets another one wait for ever."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from crashcheck.analyzer.concurrency.observations import ObservationKind, read_log
from crashcheck.runtime import build
from support.compilers import c_compiler
from support.paths import RUNTIME_PROGRAMS

KEY = 10  # of the program's unit: its site 1 is 11


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("interrupted") / "program", "guard_interrupted.c")


def compiled(target: Path, source: str) -> Path:
    """A program, linked with the runtime's own sources."""
    sources = [*build.guard_sources(), RUNTIME_PROGRAMS / source]
    command = [*c_compiler(), "-std=gnu11", "-D_GNU_SOURCE", "-O1", "-g", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([*command, f"-I{build.INCLUDE}", *map(str, sources), "-o", target, "-lpthread"], check=True)
    return target


def violations(
    folder: Path, source: str, options: str
) -> tuple[dict[tuple[int, int], tuple[int, int]], dict[tuple[int, int], int]]:
    """What a program logs, by a site and the one before it: stalls that were resolved or not, and for how long."""
    program, log_file = compiled(folder / "program", source), folder / "log"
    subprocess.run([program], env={"CRASHCHECK_GUARD": f"{options},log={log_file}"}, check=True, timeout=60)
    rows = read_log(log_file).of(ObservationKind.VIOLATION)
    sites = [(int(row["site"]), int(row["before"])) for row in rows]
    ends = [(int(row["resolved"]), int(row["unresolved"])) for row in rows]
    return dict(zip(sites, ends, strict=True)), dict(zip(sites, map(int, rows["stalled_ns"]), strict=True))


@pytest.mark.parametrize(
    ("how", "pairs", "taken_over"),
    [
        ("handler", [(1, None), (2, None), (3, None), (4, 3)], 0),
        ("jump", [(1, None), (2, None), (3, None), (4, 3)], 0),
        ("forget", [(1, None), (2, None), (4, 1)], 0),
        ("wait", [(1, None), (2, None), (4, 1), (5, 4)], None),  # none or one: on a busy machine the owner is slow
        ("end", [(1, None), (4, 1)], 1),
        ("fork", [(1, None), (4, None), (5, None)], 1),
    ],
)
def test_whoever_comes_next_gets_the_variable(
    program: Path, tmp_path: Path, how: str, pairs: list[tuple[int, int | None]], taken_over: int | None
) -> None:
    log_file = tmp_path / "log"
    subprocess.run([program, how], env={"CRASHCHECK_GUARD": f"log={log_file}"}, check=True, timeout=60)
    log = read_log(log_file)
    rows = log.of(ObservationKind.REMOTE)
    found = {(int(row["site"]) - KEY, int(row["before"]) - KEY if row["before"] else None) for row in rows}
    assert found == set(pairs)
    taken = "1 locks of variables, taken from threads that never gave them back"
    assert log.lost in ([(), (taken,)] if taken_over is None else [(taken,) * taken_over])


def test_what_is_logged_as_unresolved_is_the_order_that_took_place(tmp_path: Path) -> None:
    """Site 2 is stalled after site 1; site 3 accesses the variable; the stall is over, and site 2 follows site 3."""
    found, _ = violations(tmp_path, "guard_overtaken.c", "stall=100000,most=10")
    assert found == {(2, 1): (0, 0), (2, 3): (0, 1)}


def test_a_forked_child_is_stalled_only_while_it_has_threads(tmp_path: Path) -> None:
    """Its site 4, alone, is not; its site 2 is, beside another thread, and is resolved. A stall may take an hour."""
    found, stalled_ns = violations(tmp_path, "guard_forked.c", "stall=1000,most=3600000")
    assert found == {(4, 1): (0, 1), (2, 1): (1, 0)}
    assert stalled_ns[4, 1] == 0


def test_no_thread_runs_unguarded_while_another_starts_the_runtime(program: Path, tmp_path: Path) -> None:
    for time in range(20):
        log_file = tmp_path / f"log-{time}"
        subprocess.run([program, "together"], env={"CRASHCHECK_GUARD": f"log={log_file}"}, check=True, timeout=60)
        rows = read_log(log_file).of(ObservationKind.REMOTE)
        assert rows["count"].sum() == 4


def test_training_holds_threads_up_where_it_is_asked_to(tmp_path: Path) -> None:
    """The program ends when one of its threads has seen the other one held up: at a new site each time, 1 of 16."""
    program, log_file = compiled(tmp_path / "program", "guard_perturbed.c"), tmp_path / "log"
    subprocess.run([program], env={"CRASHCHECK_GUARD": f"perturb=1,log={log_file}"}, check=True, timeout=60)
    assert read_log(log_file).of(ObservationKind.REMOTE)["count"].sum() > 0


def test_a_thread_that_loses_a_word_while_it_splits_it_harms_nothing(tmp_path: Path) -> None:
    """What is known of the words is of their accesses: site 0 to 3, and the handler's."""
    program, log_file = compiled(tmp_path / "program", "guard_split.c"), tmp_path / "log"
    subprocess.run([program], env={"CRASHCHECK_GUARD": f"log={log_file}"}, check=True, timeout=60)
    rows = read_log(log_file).of(ObservationKind.REMOTE)
    assert {int(before) for before in rows["before"]} <= {0, *(KEY + site for site in (0, 1, 2, 3, signal.SIGUSR1))}
