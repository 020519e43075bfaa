"""`crashcheck run` on programs and machines that misbehave: a clear end, a whole report, and nothing left running."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import pytest

from crashcheck import pipeline
from crashcheck.checker.store import Programs, Store
from crashcheck.config import load, override

PROGRAM = """
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
int main(int argc, char **argv) {
    int fd = open(argv[1], O_RDWR | O_CREAT, 0644);
    if (ftruncate(fd, 4096)) return 1;
    long *p = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    for (long i = 1; i <= 8; i++) {
        p[8 * i] = i;
        p[8 * i + 64] = i;
        __builtin_ia32_clflush(&p[8 * i]);
        __builtin_ia32_clflush(&p[8 * i + 64]);
    }
    return argc != 2;
}
"""
CONFIG = """
[build]
command = "crashcheck-cc -g workload.c -o workload"
[workload]
command = "./workload {pool}/data.db"
[pool]
files = ["*.db"]
[check]
command = CHECK
timeout_s = 600
first = "skip"
"""
LOADED_BY_SEARCH = """
import sys
from crashcheck.checker.search.loop import Loop
from crashcheck.cli import main
run = Loop.run
def noted(self, take):
    before = set(sys.modules)
    stop = run(self, take)
    new = [sys.modules[name] for name in sorted(set(sys.modules) - before)]
    print("loaded:", [each.__name__ for each in new if str(getattr(each, "__file__", "")).endswith(".so")])
    return stop
Loop.run = noted
sys.exit(main(sys.argv[1:]))
"""
FINAL = "test $(od -An -tu8 -j1024 -N8 {pool}/data.db) = 8"  # the uncrashed image


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "Prüfling mit Leerzeichen"
    folder.mkdir()
    (folder / "workload.c").write_text(PROGRAM)
    return folder


def configure(project: Path, check: str) -> None:
    (project / "crashcheck.toml").write_text(CONFIG.replace("CHECK", json.dumps(check)), encoding="utf-8")


def start(project: Path, environment: dict[str, str], *words: str) -> subprocess.Popen[str]:
    command = ["crashcheck", "run", "--format", "json=report.json", *words]
    return subprocess.Popen(
        command, cwd=project, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def report(project: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((project / "report.json").read_text(encoding="utf-8"))
    return loaded


def running_in(folder: Path) -> list[str]:
    """Command lines of processes whose working folder is in `folder`."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if Path(os.readlink(process / "cwd")).is_relative_to(folder):
                found.append((process / "cmdline").read_text())
        except OSError:
            continue
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_reports_what_it_had_and_leaves_nothing_running(
    project: Path, environment: dict[str, str], number: signal.Signals
) -> None:
    # The check's first crash state hangs, with a child in a session of its own.
    os.mkfifo(project / "hangs")
    configure(project, f"{FINAL} || {{ setsid sleep 1000 & echo > hangs; wait; }}")
    process = start(project, environment, "--jobs", "1")
    (project / "hangs").read_text()
    process.send_signal(number)
    process.communicate()
    assert process.returncode == 2
    assert report(project)["run"]["stop_reason"] == "interrupted"
    assert running_in(project) == []


def test_a_search_loads_no_compiled_module_which_might_swallow_an_interruption(
    project: Path, environment: dict[str, str]
) -> None:
    configure(project, FINAL)
    command = [sys.executable, "-c", LOADED_BY_SEARCH, "run", "--states", "12"]
    printed = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False).stdout
    assert [line for line in printed.splitlines() if line.startswith("loaded:")] == ["loaded: []"]


def test_a_run_that_is_terminated_while_recording_reports_it_and_leaves_nothing_running(
    project: Path, environment: dict[str, str]
) -> None:
    os.mkfifo(project / "hangs")
    configure(project, FINAL)
    text = (project / "crashcheck.toml").read_text().replace("./workload {pool}/data.db", "echo > hangs; sleep 1000")
    (project / "crashcheck.toml").write_text(text)
    process = start(project, environment)
    (project / "hangs").read_text()
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate()
    assert (process.returncode, said) == (2, "crashcheck: interrupted\n")
    assert running_in(project) == []


def test_two_runs_in_one_folder_at_once_do_not_disturb_each_other(project: Path, environment: dict[str, str]) -> None:
    configure(project, "true")
    processes = [start(project, environment, "--format", f"json={name}") for name in ("one.json", "two.json")]
    said = [process.communicate() for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    counts = [json.loads((project / name).read_text())["run"]["states"] for name in ("one.json", "two.json")]
    assert counts[0] == counts[1]
    assert counts[0]["executed"] + counts[0]["pruned"] == counts[0]["feasible"] == 27


def test_orphans_of_a_check_are_ended_with_it(project: Path, environment: dict[str, str]) -> None:
    configure(project, "setsid sleep 1000 & sleep 1000 & true")
    process = start(project, environment, "--states", "12")
    process.communicate()
    assert process.returncode == 0
    assert report(project)["run"]["states"]["executed"] == 12
    assert running_in(project) == []


def test_a_check_that_fails_on_the_clean_image_ends_the_run_with_the_command_to_try(
    project: Path, environment: dict[str, str]
) -> None:
    configure(project, "echo broken > /dev/stderr; test ! -e {pool}/data.db")
    process = start(project, environment)
    _, said = process.communicate()
    assert process.returncode == 2
    assert "with nothing crashed: exit status 1\n  | broken [check-rejects-final]" in said
    command = said.split("(on a copy, if it writes): ")[1]
    done = subprocess.run(command, shell=True, cwd=project, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, "broken\n")
    assert not (project / "report.json").exists()


def test_a_check_that_lacks_the_environment_of_the_workload_and_fails_on_the_clean_image_is_told(
    project: Path, environment: dict[str, str]
) -> None:
    configure(project, 'test "$LIBRARIES$MODE" = libs')
    path = project / "crashcheck.toml"
    env = '[workload]\nenv = { LIBRARIES = "libs", MODE = "" }\n'
    path.write_text(path.read_text(encoding="utf-8").replace("[workload]\n", env), encoding="utf-8")
    _, said = start(project, environment).communicate()
    assert "[check-rejects-final]\n  [workload] env, and not [check] env, sets LIBRARIES, MODE. " in said
    text = path.read_text(encoding="utf-8")
    path.write_text(f"{text}\n[check.env]\nLIBRARIES = 'libs'\nMODE = ''\n", encoding="utf-8")
    assert "check-rejects-final" not in start(project, environment).communicate()[1]


def handles_of(folder: Path) -> list[int]:
    """Handles of the processes whose working folder is in `folder`; readable when the process has ended."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if Path(os.readlink(process / "cwd")).is_relative_to(folder):
                found.append(os.pidfd_open(int(process.name)))
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_run_that_is_ended_while_building_leaves_nothing_running(
    project: Path, environment: dict[str, str], number: signal.Signals
) -> None:
    if signal.getsignal(number) == signal.SIG_IGN:
        pytest.skip(f"{number.name} is ignored here, as under nohup")
    os.mkfifo(project / "builds")
    configure(project, FINAL)
    text = (project / "crashcheck.toml").read_text()
    hanging = "setsid sleep 1000 & sleep 1000 & echo > builds; wait"
    (project / "crashcheck.toml").write_text(text.replace("crashcheck-cc -g workload.c -o workload", hanging))
    process = start(project, environment)
    (project / "builds").read_text()
    handles = handles_of(project)
    assert len(handles) >= 4  # crashcheck, its supervisor, the shell and what it started
    process.send_signal(number)
    _, said = process.communicate()
    if number != signal.SIGKILL:
        assert (process.returncode, said) == (2, "crashcheck: interrupted\n")
    for handle in handles:
        assert wait([handle], timeout=60) == [handle]
        os.close(handle)


def test_what_a_finished_build_leaves_running_goes_on(project: Path, environment: dict[str, str]) -> None:
    configure(project, "true")
    text = (project / "crashcheck.toml").read_text()
    server = "{ setsid sleep 1000 & echo $! > pid; }; crashcheck-cc -g workload.c -o workload"
    (project / "crashcheck.toml").write_text(text.replace("crashcheck-cc -g workload.c -o workload", server))
    process = start(project, environment)
    process.communicate()
    server_pid = int((project / "pid").read_text())
    os.kill(server_pid, signal.SIGKILL)
    assert process.returncode == 0


@pytest.mark.parametrize("who", ["build", "workload", "check"])
def test_stopping_the_parent_does_not_hang_the_run(project: Path, environment: dict[str, str], who: str) -> None:
    stop = "kill -STOP $PPID; "
    configure(project, (stop if who == "check" else "") + "true")
    text = (project / "crashcheck.toml").read_text()
    if who == "build":
        text = text.replace("crashcheck-cc -g", stop + "crashcheck-cc -g")
    if who == "workload":
        text = text.replace("./workload {pool}", stop + "exec ./workload {pool}")
    (project / "crashcheck.toml").write_text(text)
    process = start(project, environment, "--states", "3", "--no-fixes")
    process.communicate(timeout=200)
    assert process.returncode == 2  # it came to its end, and three states are no verdict


def test_a_run_says_that_it_waits_for_another(project: Path, environment: dict[str, str]) -> None:
    configure(project, "true")
    (project / ".crashcheck").mkdir()
    with open(project / ".crashcheck" / "programs.lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = start(project, environment, "--states", "1")
        assert process.stderr is not None
        said = process.stderr.readline()
        fcntl.flock(lock, fcntl.LOCK_UN)
    process.communicate()
    assert said == f"crashcheck: waiting for another run in {project}/.crashcheck\n"
    assert process.returncode == 2  # one state is no verdict


@pytest.mark.parametrize("hold", [Programs.alone, Programs.together])
def test_the_time_of_a_wait_is_known(tmp_path: Path, hold: Callable[[Programs, Callable[[], None]], float]) -> None:
    store = Store(tmp_path)
    store.new_run().close()
    with contextlib.ExitStack() as other_run, store.programs() as ours:
        assert other_run.enter_context(store.programs()).alone(pytest.fail) == 0.0
        assert hold(ours, other_run.close) > 0.0


def test_a_report_does_not_count_the_wait_for_another_run(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configure(project, "true")
    monkeypatch.setattr(Programs, "together", lambda self, on_wait: 1000.0)
    result = pipeline.run(override(load(project), states=1)).result
    assert -1000 < result.seconds < 0
