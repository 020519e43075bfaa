"""Checks are bounded, leave nobody behind, and their verdicts do not depend on the workers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from crashcheck.checker.execution.process import Limits, Runner
from crashcheck.checker.execution.time_limit import RunClock, TimeLimit
from crashcheck.checker.execution.worker import Exploration, pool_of
from crashcheck.checker.results import Outcome, Verdict
from crashcheck.checker.states.by_deviation import states_of_deviation
from crashcheck.errors import CrashcheckError
from support.checked_worlds import World, two_stores, words
from support.paths import ROOT, TESTS
from support.tracing import TraceBuilder

Build = Callable[..., World]


@pytest.fixture
def world(tmp_path: Path) -> Build:
    def make(command: list[str] | str, limits: Limits | None = None) -> World:
        return World(tmp_path / "world", words(command), two_stores, limits=limits or Limits(timeout_s=60))

    return make


def one(world: World) -> Verdict:
    """The verdict on the first state."""
    with world.executor() as executor:
        return executor.run(world.space.full(0))


def processes_of(pool: Path) -> list[str]:
    """Command lines of live processes that were started for an image."""
    mark = b"CRASHCHECK_POOL=" + os.fsencode(pool)
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and mark in (folder / "environ").read_bytes():
                found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


@pytest.mark.parametrize(
    ("command", "outcome", "code", "number"),
    [
        ("exit 0; true", Outcome.PASS, 0, None),
        ("exit 3; true", Outcome.FAIL, 3, None),
        ("kill -ABRT $$", Outcome.SIGNAL, None, signal.SIGABRT),
        ("kill -KILL $$", Outcome.SIGNAL, None, signal.SIGKILL),
    ],
)
def test_endings_are_distinguished(
    world: Build, command: str, outcome: Outcome, code: int | None, number: int | None
) -> None:
    verdict = one(world(command))
    assert (verdict.outcome, verdict.exit_code, verdict.signal) == (outcome, code, number)


def test_a_hanging_check_is_a_time_out(world: Build) -> None:
    verdict = one(world(["sleep", "1000"], Limits(timeout_s=0.2)))
    assert (verdict.outcome, verdict.exit_code, verdict.signal) == (Outcome.TIMEOUT, None, None)


def test_what_a_check_printed_before_its_time_out_is_kept(world: Build) -> None:
    verdict = one(world("echo looking; sleep 1000", Limits(timeout_s=2)))
    assert verdict.outcome is Outcome.TIMEOUT
    assert verdict.output == "looking\n"


@pytest.mark.parametrize(
    "command",
    [
        "setsid sleep 1000 & exit 0",
        "(setsid sh -c 'sleep 1000 & sleep 1000' &) ; exit 0",
        "trap '' TERM HUP; sh -c 'trap \"\" TERM; setsid sleep 1000 & sleep 1000' & sleep 1000",
    ],
)
def test_no_grandchild_outlives_its_check_even_in_a_session_of_its_own(world: Build, command: str) -> None:
    subject = world(command, Limits(timeout_s=1))
    with subject.executor() as executor:
        executor.run(subject.space.full(0))
        assert [processes_of(pool_of(executor.home / "w000", full)) for full in (False, True)] == [[], []]


def test_a_memory_hog_meets_its_limit(world: Build, vandal: Path) -> None:
    verdict = one(world([str(vandal), "hog", "{pool}"], Limits(timeout_s=60, memory_bytes=256 << 20)))
    assert verdict.outcome is Outcome.LIMIT
    assert "memory limit" in verdict.output


def test_addresses_that_are_reserved_and_files_that_are_mapped_meet_no_memory_limit(world: Build) -> None:
    """Virtual machines reserve many times what they use, and databases map more of a file than it has."""
    reserve = "import mmap, os; mmap.mmap(-1, 8 << 30, prot=mmap.PROT_READ)"
    map_file = "file = os.memfd_create('large'); os.ftruncate(file, 8 << 30); mmap.mmap(file, 0)"
    command = [sys.executable, "-c", f"{reserve}; {map_file}"]
    assert one(world(command, Limits(timeout_s=60, memory_bytes=256 << 20))).outcome is Outcome.PASS


def test_a_failing_check_under_a_memory_limit_is_a_plain_failure(world: Build) -> None:
    verdict = one(world("exit 1; true", Limits(timeout_s=60, memory_bytes=256 << 20)))
    assert verdict.outcome is Outcome.FAIL


def test_a_flood_of_output_is_cut_off_and_its_ends_are_kept(world: Build, vandal: Path) -> None:
    limits = Limits(timeout_s=60, kept_bytes=1000, output_bytes=1 << 20)
    verdict = one(world([str(vandal), "flood", "{pool}"], limits))
    assert verdict.outcome is Outcome.LIMIT
    assert verdict.output_truncated
    assert verdict.output.startswith("all work and no play\n")
    assert len(verdict.output) < 1200


def test_much_output_that_ends_is_shortened_and_no_failure(world: Build) -> None:
    verdict = one(world("seq 100000; true", Limits(timeout_s=60, kept_bytes=100)))
    assert verdict.passed
    assert verdict.output_truncated
    assert verdict.output.startswith("1\n2\n")
    assert verdict.output.endswith("99999\n100000\n")


def test_a_file_that_grows_without_end_meets_its_limit(world: Build, vandal: Path) -> None:
    subject = world([str(vandal), "fill", "{pool}"], Limits(timeout_s=60, file_bytes=1 << 20))
    with subject.executor() as executor:
        verdict = executor.run(subject.space.full(0))
        assert verdict.outcome is Outcome.LIMIT
        assert verdict.signal == signal.SIGXFSZ
        assert (pool_of(executor.home / "w000", True) / "p").stat().st_size == 4096


def test_address_space_is_not_randomised(world: Build, vandal: Path) -> None:
    assert one(world([str(vandal), "randomised", "{pool}"])).passed


def test_a_check_reads_nothing_from_us_and_drops_no_core(world: Build) -> None:
    assert one(world('test -z "$(cat)" && test "$(ulimit -c)" = 0')).passed


def test_signals_that_python_ignores_are_at_their_defaults(world: Build) -> None:
    verdict = one(world("sh -c 'kill -PIPE $$'; test $? = 141"))
    assert verdict.passed


def test_a_check_gets_its_pool_and_never_records(world: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRASHCHECK_TRACE", "/nowhere")
    verdict = one(world('test "$CRASHCHECK_POOL" = {pool} && test -z "${CRASHCHECK_TRACE+set}" && test -f {pool}/p'))
    assert verdict.passed, verdict.output


def test_the_pool_is_called_pool_in_outputs(world: Build) -> None:
    assert one(world(["echo", "{pool}/p"])).output == "{pool}/p\n"


def test_acknowledged_operations_and_output_are_those_of_the_crash_point(tmp_path: Path) -> None:
    def script(t: TraceBuilder) -> None:
        t.begin(1)
        t.store("p", 0, 8, 1)
        t.output(3)
        t.end(1)
        t.output(6)

    world = World(tmp_path / "world", words("echo {acked} $(cat {stdout})"), script)
    printed = tmp_path / "printed"
    printed.write_bytes(b"ab cd\n")
    world.setup = type(world.setup)(
        world.setup.command, world.setup.folder, world.setup.first, world.setup.work, recorded_stdout=printed
    )
    with world.executor() as executor:
        outputs = [executor.run(world.space.full(point)).output for point in range(len(world.space.points))]
    assert outputs == ["0\n", "0\n", "0 ab\n", "1 ab\n", "1 ab cd\n"]


def test_verdicts_are_in_the_order_asked_for_whatever_the_number_of_workers(world: Build) -> None:
    subject = world("od -An -tu8 -j0 -N8 {pool}/p; od -An -tu8 -j64 -N8 {pool}/p; true")
    states = list(states_of_deviation(subject.space, 0)) + list(states_of_deviation(subject.space, 1))
    seen = []
    for jobs in (1, 2, 3):
        with subject.executor(jobs) as executor:
            tickets = [executor.submit(state) for state in states]
            verdicts = [executor.result(ticket) for ticket in tickets]
        seen.append([verdict.output.split() for verdict in verdicts if verdict is not None])
    assert seen[0] == seen[1] == seen[2]
    assert ["0", "2"] in seen[0]
    assert ["1", "0"] in seen[0]


def test_images_are_right_whichever_way_the_points_are_visited(world: Build) -> None:
    subject = world("od -An -tu8 -j0 -N8 {pool}/p; od -An -tu8 -j64 -N8 {pool}/p; true")
    points = range(len(subject.space.points))
    with subject.executor() as executor:
        forward = [executor.run(subject.space.full(point)).output for point in points]
        backward = [executor.run(subject.space.full(point)).output for point in reversed(points)]
        final = executor.run_final().output
        first = executor.run_first().output
    assert forward == backward[::-1]
    assert final == forward[-1]
    assert first.split() == ["0", "0"]


def test_a_result_that_is_late_is_none(world: Build) -> None:
    subject = world(["sleep", "1000"])
    with subject.executor() as executor:
        assert executor.result(executor.submit(subject.space.full(0)), timeout_s=0.01) is None
        pool = pool_of(executor.home / "w000", True)
    assert processes_of(pool) == []


def test_a_worker_that_dies_is_named_and_its_check_ended(world: Build) -> None:
    subject = world("kill -KILL $PPID; exec sleep 1000")
    with subject.executor() as executor:
        with pytest.raises(
            CrashcheckError, match=r"worker 0 \(process \d+\) was ended by signal 9 \(SIGKILL\)"
        ) as caught:
            executor.run(subject.space.full(0))
        assert caught.value.slug == "worker-died"
        assert [processes_of(pool_of(executor.home / "w000", full)) for full in (False, True)] == [[], []]


def test_a_program_that_is_not_there_is_an_error_before_anything_runs(world: Build) -> None:
    with pytest.raises(CrashcheckError, match="no-such-program") as caught:
        world(["./no-such-program", "{pool}"])
    assert caught.value.slug == "check-not-started"


def test_a_program_that_cannot_be_executed_is_an_error(world: Build, tmp_path: Path) -> None:
    program = tmp_path / "text"
    program.write_bytes(b"\x7fELF but not really")
    program.chmod(0o755)
    subject = world([str(program)])
    with subject.executor() as executor, pytest.raises(CrashcheckError) as caught:
        executor.run(subject.space.full(0))
    assert caught.value.slug == "check-not-started"


def test_nothing_is_left_when_an_executor_is_closed(world: Build) -> None:
    subject = world(["true"])
    with subject.executor(2) as executor:
        home = executor.home
        executor.run(subject.space.full(0))
    assert not home.exists()


def test_an_owner_that_is_killed_takes_workers_and_checks_along(tmp_path: Path) -> None:
    """The worker sees its connection end, whatever became of us."""
    script = f"""
import sys
sys.path[:0] = [{str(TESTS)!r}, *{sys.path!r}]
import pytest
from pathlib import Path
from crashcheck.checker.execution.process import Limits
from support.checked_worlds import World, words
from support.checked_worlds import two_stores
world = World(Path({str(tmp_path)!r}) / "world", words(["sleep", "1000"]), two_stores, limits=Limits(timeout_s=900))
with world.executor() as executor:
    executor.submit(world.space.full(0))
    print(executor.home, flush=True)
    sys.stdin.read()
"""
    root = ROOT
    owner = subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=root,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": f"{root / 'src'}:{root / 'tests'}"},
        text=True,
    )
    assert owner.stdout is not None
    assert owner.stdin is not None
    home = Path(owner.stdout.readline().strip())
    owner.kill()
    owner.wait()
    owner.stdout.close()
    owner.stdin.close()
    deadline = time.monotonic() + 60
    while (processes_of(pool_of(home / "w000", True)) or (home / "w000").exists()) and time.monotonic() < deadline:
        pass
    assert not (home / "w000").exists()
    (home / "lock").unlink()
    home.rmdir()


def test_a_full_disk_while_checking_is_an_error_that_names_it(tmp_path: Path) -> None:
    """On a file system of its own; where this user may not mount one there is nothing to be tried."""
    probe = subprocess.run(["unshare", "-Urm", "true"], capture_output=True, check=False)
    if probe.returncode:
        pytest.skip("no user namespaces here: " + probe.stderr.decode())
    script = f"""
import sys
sys.path[:0] = [{str(TESTS)!r}, *{sys.path!r}]
from pathlib import Path
from crashcheck.checker.images import image_folder
from crashcheck.checker.results import StopReason
from support.checked_worlds import World, words
from support.checked_worlds import two_stores
image_folder._SHARED_MEMORY = Path("/nowhere")
image_folder.home.__defaults__ = (Path("/nowhere"), None)
check = words("head -c 1000000000 /dev/zero > {{pool}}/more")
world = World(Path("/mnt/world"), check, two_stores)
found = world.explore()
assert found.stop_reason is StopReason.DISK_FULL, found
assert found.findings == (), found
print(*found.warnings)
"""
    root = ROOT
    run = subprocess.run(
        ["unshare", "-Urm", "sh", "-c", 'mount -t tmpfs -o size=4m none /mnt && "$0" -c "$1"', sys.executable, script],
        cwd=root,
        env={**os.environ, "PYTHONPATH": f"{root / 'src'}:{root / 'tests'}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert "no room is left for crash images" in run.stdout


def test_a_check_that_ended_while_its_worker_was_stopped_did_not_time_out() -> None:
    child = os.posix_spawn("/bin/true", ["true"], {})
    handle = os.pidfd_open(child)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    long_ago = RunClock(child, TimeLimit(1.0), 0.0, set())
    assert object.__new__(Runner)._wait(handle, None, {}, long_ago) == "ended"
    os.waitpid(child, 0)
    os.close(handle)


def test_an_exploration_that_begins_late_ends_with_the_budget() -> None:
    now = time.monotonic()
    for until_s, low, high in (
        (None, 20.0, 20.0),
        (now + 1000, 20.0, 20.0),
        (now + 10, 0.0, 10.0),
        (now - 1, 0.0, 0.0),
    ):
        assert low <= Exploration(1, ("check",), {}, 20.0, until_s).left_s <= high


def test_a_likely_run_that_is_dropped_leaves_nothing_behind(world: Build) -> None:
    """Whether it was not begun, is under way or has ended."""
    recorded = world("exit 0; true")
    states = [recorded.space.full(point) for point in range(len(recorded.space.points))]
    with recorded.executor(2) as executor:
        tickets = [executor.submit_likely(state) for state in states * 4]
        assert executor.now(tickets.pop()).passed
        for ticket in tickets:
            executor.drop(ticket)
        assert all(executor.run(state).passed for state in states * 4)
        while executor.workers._dropped:  # is under way, at the other worker
            executor.workers._collect()
        assert not executor.workers._tickets
