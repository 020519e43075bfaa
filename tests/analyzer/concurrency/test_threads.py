"""The paper's eight patterns (AI, table 1): a violation is recognised at its turning point, and a guard prevents it."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from crashcheck import config
from crashcheck.analyzer.compile.driver.toolchain import THREADS
from crashcheck.analyzer.concurrency.anticipating import AnticipatingInvariants, Guarded, read_guarded
from crashcheck.analyzer.concurrency.observations import read_log
from crashcheck.cli.learn import Checked, check, learn
from support.compilers import c_compiler
from support.paths import EXAMPLES

EXAMPLE = EXAMPLES / "threads"
GOOD = 2  # schedules of each program
RUNS = 5


@dataclass(frozen=True)
class Pattern:
    """`bad` schedules with the line, by what it contains, of the access that is just before the turning point there."""

    name: str
    program: str
    bad: dict[str, str | None]


PATTERNS = [
    Pattern("R-R|W", "rr-w", {"bad": "if (info)"}),
    Pattern("W-R|W", "wr-w", {"bad": "status = OK;"}),
    Pattern("W-W|R", "ww-r", {"bad": "log_is_open = 0;"}),
    Pattern("R-W|R-W", "rw-rw", {"bad": "int now = references;", "bad2": "int now = references;"}),
    Pattern("R-R-W|R-R-W", "rrw-rrw", {"bad": "if (used + RECORD", "bad2": "int at = used;"}),
    Pattern("order W-R", "order-wr", {"bad": None}),
    Pattern("order R-W", "order-rw", {"bad": None}),
    Pattern("order W-W", "order-ww", {"bad": None}),
]
each = pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.name)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory, commands: Path) -> Path:
    """The examples, built with crashcheck-cc."""
    folder = tmp_path_factory.mktemp("threads")
    for file in EXAMPLE.iterdir():
        if file.suffix in (".c", ".h") or file.name == "Makefile":
            shutil.copy(file, folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(commands), prepend=":")
        patch.setenv(THREADS, "learn")
        subprocess.run(
            ["make", "-s", "CC=crashcheck-cc", f"PLAIN_CC={shlex.join(c_compiler())}"], cwd=folder, check=True
        )
    return folder


def configured(folder: Path, program: str, schedule: str) -> config.Config:
    path = folder / f"{program}.{schedule.strip('{}')}.toml"
    path.write_text(
        f'[workload]\ncommand = "./{program} {schedule}"\n[pool]\nfiles = ["*"]\n[check]\ncommand = "true"\n',
        encoding="utf-8",
    )
    return config.load(path)


def line_of(folder: Path, program: str, text: str) -> str:
    lines = (folder / f"{program}.c").read_text(encoding="utf-8").splitlines()
    (found,) = [number for number, line in enumerate(lines, 1) if text in line]
    return f"{program}.c:{found}"


def must_anticipate(checked: Checked, folder: Path, pattern: Pattern, before: str | None) -> None:
    """The run failed, and the first of what was not learned is the access at the turning point."""
    assert checked.failure == "exited with status 1"
    seen = checked.judged.violations[0].seen
    assert seen.site.where == line_of(folder, pattern.program, "/* turning point */")
    came_before = seen.before.where if seen.before is not None else None
    assert came_before == (line_of(folder, pattern.program, before) if before is not None else None)
    assert checked.judged.unjudged == ()


@each
def test_training_levels_off_and_the_bad_schedules_are_recognised_at_the_turning_point(
    programs: Path, pattern: Pattern, tmp_path: Path
) -> None:
    learned = programs / f"{pattern.program}-{tmp_path.name}.json"
    learning = learn(configured(programs, pattern.program, "{run}"), learned, RUNS)
    assert learning.new[0] > 0
    assert 1 <= learning.levelled_at <= GOOD
    for schedule, before in pattern.bad.items():
        checked = check(configured(programs, pattern.program, schedule), learned)
        must_anticipate(checked, programs, pattern, before)
    for good in range(1, GOOD + 1):
        checked = check(configured(programs, pattern.program, str(good)), learned)
        assert (checked.failure, checked.judged.violations, checked.judged.unjudged) == ("", (), ())


@each
def test_a_good_schedule_that_was_not_trained_is_relaxed_and_the_bad_ones_stay_recognised(
    programs: Path, pattern: Pattern, tmp_path: Path
) -> None:
    learned = programs / f"{pattern.program}-{tmp_path.name}.json"
    learn(configured(programs, pattern.program, "1"), learned, 1)
    other = configured(programs, pattern.program, "2")
    check(other, learned, relax=True)
    relaxed = check(other, learned)
    assert (relaxed.failure, relaxed.judged.violations, relaxed.judged.unjudged) == ("", (), ())
    for schedule, before in pattern.bad.items():
        checked = check(configured(programs, pattern.program, schedule), learned)
        must_anticipate(checked, programs, pattern, before)
    trained = programs / f"{pattern.program}-{tmp_path.name}-both.json"
    learn(configured(programs, pattern.program, "{run}"), trained, GOOD)
    assert AnticipatingInvariants.load(trained) == AnticipatingInvariants.load(learned)


def guarded_run(program: Path, schedule: str, log: Path) -> subprocess.CompletedProcess[str]:
    """Runs with a stall so long that it ends only by another thread's access."""
    environment = {"CRASHCHECK_GUARD": f"stall=1000000,most=100,log={log}"}
    return subprocess.run([program, schedule], env=environment, capture_output=True, text=True, check=False)


def guarded_build(programs: Path, pattern: Pattern, learned: Path, environment: dict[str, str], *flags: str) -> Path:
    """The pattern's program, guarded by what was learned."""
    program = learned.with_suffix("")
    command = ["crashcheck-cc", "--guard", learned, *flags, "-O0", "-g", "-pthread", "-o", program]
    subprocess.run([*command, f"{pattern.program}.c", "schedule.o"], cwd=programs, env=environment, check=True)
    return program


@each
def test_a_guarded_program_stalls_at_the_turning_point_and_does_not_fail(
    programs: Path, pattern: Pattern, tmp_path: Path, environment: dict[str, str]
) -> None:
    path = programs / f"{pattern.program}-{tmp_path.name}.json"
    learn(configured(programs, pattern.program, "{run}"), path, GOOD)
    program = guarded_build(programs, pattern, path, environment)
    learned = AnticipatingInvariants.load(path)
    for good in range(1, GOOD + 1):
        log = tmp_path / f"log-{good}"
        assert guarded_run(program, str(good), log).returncode == 0
        assert read_guarded(read_log(log), learned, programs) == Guarded((), (), learned.codes, ())
    for schedule, before in pattern.bad.items():
        unguarded = subprocess.run([programs / pattern.program, schedule], capture_output=True, check=False)
        assert unguarded.returncode == 1
        log = tmp_path / f"log-{schedule}"
        assert guarded_run(program, schedule, log).returncode == 0
        # The thread that continues meanwhile may be stalled, too, until this one is awake.
        first, *others = read_guarded(read_log(log), learned, programs).stalls
        seen = first.violation.seen
        assert seen.site.where == line_of(programs, pattern.program, "/* turning point */")
        assert (first.resolved, [stall.unresolved for stall in (first, *others)]) == (1, [0] * (1 + len(others)))
        came_before = seen.before.where if seen.before is not None else None
        assert came_before == (line_of(programs, pattern.program, before) if before is not None else None)


@each
def test_a_fixed_program_passes_all_schedules_and_its_guard_never_stalls(
    programs: Path, pattern: Pattern, tmp_path: Path, environment: dict[str, str]
) -> None:
    path = programs / f"{pattern.program}-{tmp_path.name}.json"
    learn(configured(programs, f"{pattern.program}-fixed", "{run}"), path, GOOD)
    learned = AnticipatingInvariants.load(path)
    program = guarded_build(programs, pattern, path, environment, "-DFIXED")
    for schedule in (*pattern.bad, *map(str, range(1, GOOD + 1))):
        log = tmp_path / f"log-{schedule}"
        assert guarded_run(program, schedule, log).returncode == 0
        assert read_guarded(read_log(log), learned, programs) == Guarded((), (), learned.codes, ())
