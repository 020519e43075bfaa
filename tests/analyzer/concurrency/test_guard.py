"""`crashcheck guard` as a user meets it: a false alarm that is relaxed, changed code, static programs and plug-ins."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from crashcheck.analyzer.concurrency.observations import ObservationKind, read_log
from support import compilers
from support.command_line import run_crashcheck
from support.thread_project import ThreadProject, handover

PROGRAM = handover("    return seen > 1;\n")
AT_ONCE = "stall=0,most=0"  # a violation is logged, and the thread continues


class Project(ThreadProject):
    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        settings = f'env = {{CRASHCHECK_GUARD = "{AT_ONCE}"}}\n'
        super().__init__(folder, environment, PROGRAM, flags="$FLAGS", settings=settings)

    def run(self, *words: str, status: int = 0) -> str:
        done = run_crashcheck(*words, cwd=self.folder, env=self.environment)
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout + done.stderr

    def program(self, *words: str, log: str = "log") -> int:
        """The exit status of the program as it was built last."""
        (self.folder / log).unlink(missing_ok=True)
        environment = {"CRASHCHECK_GUARD": f"{AT_ONCE},log={self.folder / log}"}
        return subprocess.run([self.folder / "program", *words], env=environment, check=False).returncode


@pytest.fixture
def project(tmp_path: Path, environment: dict[str, str]) -> Project:
    return Project(tmp_path, environment)


LATE = (
    "not learned: program.c:6 get ready (thread 2): after nothing of another thread; in passing runs after "
    "program.c:5 set ready; stalled 0.0 ms: 0 resolved, 1 not"
)


def test_a_false_alarm_is_logged_relaxed_and_gone(project: Project) -> None:
    project.run("learn", "--runs", "1")
    project.run("guard")
    assert project.program() == 0
    assert project.run("guard", "report", "log") == "no violation\n"
    assert project.program("late") == 0
    assert project.run("guard", "report", "log", status=1).splitlines()[0] == LATE
    project.workload("./program late")
    relaxed = project.run("guard", "relax", "--runs", "1").splitlines()
    assert relaxed[0].startswith("run 1: passed, 2 violations, 2 learned")
    project.run("guard")
    assert project.program("late") == 0
    assert project.run("guard", "report", "log").splitlines()[0] == "no violation"


def test_code_that_changed_or_never_ran_is_counted_and_not_judged(project: Project) -> None:
    project.run("learn", "--runs", "1")
    project.source(PROGRAM.replace("return ready;", "return ready + 0 * ready;"))
    project.run("guard")
    assert project.program("late") == 0
    assert project.run("guard", "report", "log").splitlines() == [
        "no violation",
        "not judged: 3 accesses at 3 sites that training never ran, or whose code changed:",
        "  program.c:13 main: 1",
        "  program.c:6 get ready: 1",
        "  program.c:6 get ready: 1",
    ]


@pytest.mark.parametrize("flags", ["-static", "-O2 -flto"])
def test_other_ways_to_build_are_guarded_too(project: Project, flags: str) -> None:
    if "static" in flags:
        compilers.needs_static()
    project.environment["FLAGS"] = flags
    project.run("learn", "--runs", "1")
    project.run("guard")
    assert project.program("late") == 0
    assert project.run("guard", "report", "log", status=1).splitlines()[0] == LATE


HOST = """
#include <dlfcn.h>
#include <stddef.h>
int main(int count, char **words) {
    for (int i = 0; i < 2 && count > 1; i++) {
        void *plugin = dlopen(words[1], RTLD_NOW);
        void (*set)(void) = plugin ? (void (*)(void))dlsym(plugin, "set") : NULL;
        if (!set)
            return 1;
        set();
        dlclose(plugin);
    }
    return 0;
}
"""


def test_a_plug_in_observes_its_accesses_in_a_program_that_does_not(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    (tmp_path / "host.c").write_text(HOST, encoding="utf-8")
    (tmp_path / "plugin.c").write_text("int value;\nvoid set(void) { value = 1; }\n", encoding="utf-8")
    host = [*compilers.c_compiler(), "-o", "host", "host.c", "-ldl"]
    subprocess.run(host, cwd=tmp_path, check=True)
    plugin = ["crashcheck-cc", "-shared", "-fPIC", "-g", "-o", "plugin.so", "plugin.c"]
    subprocess.run(plugin, cwd=tmp_path, env={**environment, "CRASHCHECK_THREADS": "learn"}, check=True)
    options = {"CRASHCHECK_GUARD": f"log={tmp_path / 'log'}"}
    subprocess.run([tmp_path / "host", tmp_path / "plugin.so"], env=options, check=True)
    log = read_log(tmp_path / "log")
    assert [unit.source for unit in log.units] == [str(tmp_path / "plugin.c")]
    assert log.of(ObservationKind.REMOTE)["count"].tolist() == [2]


def test_what_cannot_be_guarded_or_read_is_an_error_that_names_it(project: Project) -> None:
    assert "[learned-missing]" in project.run("guard", status=2)
    project.source("static int x;\nint *p = &x;\nint main(void) { return *p; }\n")
    project.run("learn", "--runs", "1")
    assert "[guard-nothing]" in project.run("guard", status=2)
    for content in (b"", b"x" * 5000):
        (project.folder / "log").write_bytes(content)
        assert "[guard-log]" in project.run("guard", "report", "log", status=2)
    assert "[bad-option]" in project.run("guard", "report", status=2)
    assert "[bad-option]" in project.run("guard", "--runs", "2", status=2)


@pytest.mark.parametrize("path", ["/no/such/folder/log", "{own}"])
def test_a_log_that_cannot_be_written_does_not_stop_the_program(project: Project, path: str) -> None:
    project.run("learn", "--runs", "1")
    project.run("guard")
    own = project.folder / "own"
    own.write_bytes(b"mine" * 2048)
    options = {"CRASHCHECK_GUARD": f"log={path.format(own=own)}"}
    done = subprocess.run([project.folder / "program"], env=options, capture_output=True, check=False)
    assert done.returncode == 0
    assert b"the log cannot be written" in done.stderr
    assert own.read_bytes()[:8192] == b"mine" * 2048
