"""States of a search on other machines: the same is found whatever happens to the machines, and misfits are refused."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from crashcheck.checker.execution.process import Limits
from crashcheck.checker.remote import host, remote_machines, remote_runs
from crashcheck.checker.search.crash_states import SearchResult
from crashcheck.checker.strategies import Exhaustive
from crashcheck.errors import CrashcheckError
from crashcheck.stages.executor_setup import executed_by
from support.checked_worlds import LINES, World, put_flag_first, without_times, words, world_of_lines
from support.cluster_of_folders import Machines

BATCH = 4


@pytest.fixture
def machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machines]:
    monkeypatch.setattr(remote_runs, "_MOST", BATCH)
    made = Machines(tmp_path / "machines")
    yield made
    for use in host._host.sessions.values():  # of machines that were lost
        use.session.close()
    host._host.sessions.clear()
    made.close()


def buggy(folder: Path, clauses: Path, rounds: int = 1) -> World:
    claims = f"{64 * LINES}>{64 * LINES - 64}", f"{64 * LINES}>0"
    return world_of_lines(folder, clauses, *claims, rounds=rounds)


@pytest.fixture
def lines(tmp_path: Path, clauses: Path) -> World:
    """A program with a bug, of which one state in eight fails."""
    return buggy(tmp_path / "w", clauses)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory, clauses: Path) -> SearchResult:
    """What is found of `lines` on one machine."""
    return alone(buggy(tmp_path_factory.mktemp("expected") / "w", clauses))


def alone(world: World) -> SearchResult:
    with world.executor() as executor:
        return without_times(world.search(executor, strategy=Exhaustive()))


def together(world: World, machines: Machines) -> SearchResult:
    with world.executor() as executor, executed_by(machines, executor):
        return without_times(world.search(executor, strategy=Exhaustive()))


def ran(machines: Machines) -> list[int]:
    """How many batches each machine has run."""
    return [machines.calls[name, "run"] for name in machines.folders]


def test_machines_find_what_one_machine_finds(lines: World, expected: SearchResult, machines: Machines) -> None:
    found = together(lines, machines)
    assert found == expected
    assert found.findings
    # What explaining a failure has run is not executed elsewhere once more.
    assert found.states.executed / BATCH > sum(ran(machines)) - 2 > 8
    assert min(ran(machines)) > 0
    assert host._host.sessions == {}
    assert [path.name for folder in machines.folders.values() for path in folder.iterdir()] == ["crashcheck-pieces"] * 2


def test_states_of_a_machine_that_is_lost_are_executed_by_the_others(
    lines: World, expected: SearchResult, machines: Machines, capfd: pytest.CaptureFixture[str]
) -> None:
    def lost(worker: str, function: str, before: int) -> bool:
        if (worker, function, before) == ("a", "run", 2):
            del machines.there["a"]
        return worker in machines.there

    machines.on_call = lost
    found = together(lines, machines)
    assert found == expected
    assert ran(machines)[0] >= 3  # more were sent if that took long to be noticed
    assert ran(machines)[1] > 8
    assert capfd.readouterr().err == (
        "crashcheck: machines: machine a was lost: its crash states are executed elsewhere\n"
    )


def test_the_search_continues_alone_when_all_machines_are_lost(
    lines: World, expected: SearchResult, machines: Machines, capfd: pytest.CaptureFixture[str]
) -> None:
    def lost(worker: str, function: str, before: int) -> bool:
        if (function, before) == ("run", 2):
            machines.there.pop(worker)
        return worker in machines.there

    machines.on_call = lost
    assert together(lines, machines) == expected
    assert min(ran(machines)) >= 3  # more were sent if that took long to be noticed
    assert "NO WORKER IS LEFT" in capfd.readouterr().err


def test_a_machine_that_joins_takes_part(tmp_path: Path, clauses: Path, machines: Machines) -> None:
    del machines.there["b"]

    def joins(worker: str, function: str, before: int) -> bool:
        if (worker, function, before) == ("a", "run", 2):
            machines.there["b"] = 1
        return True

    machines.on_call = joins
    found = together(buggy(tmp_path / "w", clauses, rounds=4), machines)
    assert found == alone(buggy(tmp_path / "alone", clauses, rounds=4))
    assert found.findings
    assert ran(machines)[1] > 1


def test_a_machine_that_does_not_answer_is_not_waited_for(
    lines: World,
    expected: SearchResult,
    machines: Machines,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def silent(worker: str, function: str, before: int) -> bool:
        answers = (worker, function, before) != ("a", "run", 2)
        monkeypatch.setattr(remote_machines, "_SLACK_S", 60.0 if answers else -1e6)  # its time is over at once
        return answers

    machines.on_call = silent
    assert together(lines, machines) == expected
    assert "machine a is not used: it does not answer" in capfd.readouterr().err


def test_a_machine_without_the_session_is_sent_what_it_lacks(
    lines: World, expected: SearchResult, machines: Machines
) -> None:
    def forgets(worker: str, function: str, before: int) -> bool:
        if (worker, function, before) == ("a", "run", 2):
            (folder,) = machines.folders["a"].glob("crashcheck-*/first")
            host.end(machines.folders["a"], bytes.fromhex(folder.parent.name.removeprefix("crashcheck-")))
        return True

    machines.on_call = forgets
    assert together(lines, machines) == expected
    assert (machines.calls["a", "begin"], machines.calls["a", "put"]) == (2, 1)  # the pieces were still there
    assert ran(machines)[0] > 4


def test_a_machine_whose_worker_process_is_killed_is_not_used_any_more(
    lines: World, expected: SearchResult, machines: Machines, capfd: pytest.CaptureFixture[str]
) -> None:
    def killed(worker: str, function: str, before: int) -> bool:
        if (worker, function, before) == ("a", "run", 2):
            for use in host._host.sessions.values():
                if use.session.folder.parent == machines.folders["a"]:
                    for process in use.session.workers:
                        os.kill(process.pid, signal.SIGKILL)
                        process._process.wait()
        return True

    machines.on_call = killed
    assert together(lines, machines) == expected
    assert "machine a is not used: worker " in (printed := capfd.readouterr().err)
    assert "was ended by signal 9 (SIGKILL)" in printed


def test_a_file_that_is_gone_when_a_machine_joins_does_not_end_the_search(
    lines: World, expected: SearchResult, machines: Machines, capfd: pytest.CaptureFixture[str]
) -> None:
    del machines.there["b"]
    named = lines.folder / "named"
    named.write_text("content")
    lines.setup = replace(lines.setup, env={"NAMED": str(named)})

    def joins(worker: str, function: str, before: int) -> bool:
        if (worker, function, before) == ("a", "run", 2):
            named.unlink()
            machines.there["b"] = 1
        return True

    machines.on_call = joins
    assert together(lines, machines) == expected
    assert f"machine b is not used: {named} cannot be read any more" in capfd.readouterr().err


def test_files_are_sent_once_for_several_searches(lines: World, machines: Machines) -> None:
    assert together(lines, machines) == together(lines, machines)
    assert (machines.calls["a", "put"], machines.calls["b", "put"]) == (1, 1)
    (lines.setup.first / "p").write_bytes(bytes(4095) + b"1")
    together(lines, machines)
    assert (machines.calls["a", "put"], machines.calls["b", "put"]) == (2, 2)


def shell_world(folder: Path, command: str) -> World:
    """A check that sees whether a file is in its folder that its command does not name."""
    world = World(folder, words(command), put_flag_first)
    (folder / "marker").touch()
    return world


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("ls mark* || exit 3", "does not end as it does here: ls: cannot access 'mark*'"),
        ("echo mark*", "prints something else than here"),
        ("./mark*", "does not end as it does here"),
    ],
)
def test_a_machine_on_which_the_uncrashed_check_differs_is_refused(
    command: str, why: str, tmp_path: Path, machines: Machines, capfd: pytest.CaptureFixture[str]
) -> None:
    world = shell_world(tmp_path / "w", command)
    (world.folder / "marker").write_text("#!/bin/sh\n")
    (world.folder / "marker").chmod(0o700)
    with pytest.raises(CrashcheckError) as error:
        together(world, machines)
    assert error.value.slug == "executor-unusable"
    assert f"can be used: the check of the uncrashed image {why}" in error.value.message
    assert error.value.message.endswith(" (2 of them)")
    assert host._host.sessions == {}
    assert ran(machines) == [0, 0]
    assert f"machine a is not used: the check of the uncrashed image {why}" in capfd.readouterr().err


@pytest.mark.parametrize("command", ["echo $$", "echo {port}"])
def test_an_output_that_differs_from_run_to_run_or_holds_a_port_is_not_compared(
    command: str, tmp_path: Path, machines: Machines
) -> None:
    world = World(tmp_path / "w", words(command), put_flag_first)
    assert together(world, machines) == alone(world)
    assert sum(ran(machines)) > 0


def test_what_fails_elsewhere_and_passes_here_is_no_finding_and_a_warning_names_the_machine(
    tmp_path: Path, machines: Machines
) -> None:
    world = shell_world(tmp_path / "w", "test {acked} = 3 || test -e mark*")
    del machines.there["b"]
    found = together(world, machines)
    assert (found.findings, found.states.failing, found.states.flaky) == ((), 0, 0)
    (warning,) = found.warnings
    assert " crash states failed on machine a and passed here" in warning
    assert found == replace(alone(world), warnings=(warning,))


def test_a_time_out_elsewhere_is_executed_here_and_causes_no_warning(tmp_path: Path, machines: Machines) -> None:
    check = words("test {acked} = 1 || test -e mark* || sleep 1000")
    world = World(tmp_path / "w", check, lambda t: put_flag_first(t, 1), limits=Limits(timeout_s=0.3))
    (world.folder / "marker").touch()
    found = together(world, machines)
    assert found == alone(world)
    assert (found.findings, found.warnings) == ((), ())


def test_a_batch_ends_early_where_checks_are_slow(
    lines: World, expected: SearchResult, machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "BATCH_S", -1.0)  # a batch is one state
    found = together(lines, machines)
    assert found == expected
    assert sum(ran(machines)) > found.states.executed / 2


def test_other_versions_are_refused(tmp_path: Path) -> None:
    python, version, sources = host.versions()
    for theirs, why in (
        (("3.0", version, sources), f"it has Python {python}, not 3.0"),
        ((python, "0.0", sources), f"it has crashcheck {version}, not 0.0"),
        ((python, version, ""), "has other sources"),
    ):
        answer, lacks = host.hello(tmp_path, b"session", theirs, b"of another version")
        assert why in answer
        assert lacks == []


def test_a_session_whose_owner_is_gone_ends(
    lines: World, expected: SearchResult, machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    with lines.executor() as executor, executed_by(machines, executor):
        assert host._host.pop_idle() == []
        monkeypatch.setattr(host, "_IDLE_S", -1.0)
        idle = host._host.pop_idle()
        assert len(idle) == 2
        for session in idle:
            processes = [worker.pid for worker in session.workers]
            session.close()
            assert not session.folder.exists()
            for process in processes:
                with pytest.raises(ProcessLookupError):
                    os.kill(process, 0)
        assert without_times(lines.search(executor, strategy=Exhaustive())) == expected
