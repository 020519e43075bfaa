"""A check that calls crashcheck_ready() gives the report of one that does not, in fewer starts of its program."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from crashcheck.runtime.build import INCLUDE
from support import compilers
from support.command_line import run_crashcheck
from support.examples import BuiltExamples
from support.reports.timeless import timeless_report

_BEFORE = r"""
#include <crashcheck.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>
static struct stat printed;
static void *waits(void *unused) { pause(); return unused; }
__attribute__((unused)) static void called(const char *stdout_path) {
    if (COUNTS) { /* in a file outside of the image, which is closed again */
        int fd = open(STARTS, O_WRONLY | O_APPEND);
        if (fd < 0 || write(fd, ".", 1) != 1 || close(fd)) _exit(9);
    }
    stat(stdout_path, &printed);
    pthread_t thread;
    if (THREADS) pthread_create(&thread, NULL, waits, NULL);
    if (READY) CRASHCHECK_READY();
}
"""


@dataclass(frozen=True)
class Checked:
    """A report without its times, and how often the program of the check was started."""

    report: dict[str, Any]
    starts: int
    stderr: str

    @property
    def warnings(self) -> list[str]:
        found: list[str] = self.report["run"]["warnings"]
        return found


class Project:
    """A copy of an example whose check calls crashcheck_ready() before it opens anything."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        self._environment = environment

    def check(
        self,
        twin: str,
        *options: str,
        ready: bool = True,
        threads: bool = False,
        begin: str = "",
        counts: bool = True,
    ) -> Checked:
        """`begin`: what the check does first, after the call; `counts`: at each start it writes to a file."""
        starts = self.folder.with_name("starts")
        starts.write_bytes(b"")
        (original,) = self.folder.glob("check.c*")
        source = original.read_text()
        at = source.index("int main(int argc, char **argv) {")
        body = source[at:].replace("{", "{ called(argv[2]); " + begin, 1)
        (self.folder / f"ready{original.suffix}").write_text(_BEFORE + source[:at] + body)
        defined = [
            f'-DSTARTS="{starts}"',
            f"-DREADY={int(ready)}",
            f"-DTHREADS={int(threads)}",
            f"-DCOUNTS={int(counts)}",
        ]
        compiler = compilers.c_compiler() if original.suffix == ".c" else compilers.cxx_compiler()
        command = [*compiler, "-O1", "-D_GNU_SOURCE", f"-I{INCLUDE}", *defined, f"ready{original.suffix}"]
        subprocess.run([*command, "-pthread", "-o", "ready"], cwd=self.folder, check=True)
        words = ("run", "-c", self.folder / f"{twin}.toml", "--format", "json", *options)
        done = run_crashcheck(*words, cwd=self.folder, env=self._environment)
        report = timeless_report(done)
        return Checked(report, starts.stat().st_size, done.stderr)


@pytest.fixture
def project(
    request: pytest.FixtureRequest, built_example: BuiltExamples, tmp_path: Path, environment: dict[str, str]
) -> Project:
    folder = tmp_path / "project"
    shutil.copytree(built_example(request.param), folder, ignore=shutil.ignore_patterns(".crashcheck"))
    for twin in ("buggy", "fixed"):
        config = folder / f"{twin}.toml"
        config.write_text(config.read_text().replace("./check ", "./ready "))
    return Project(folder, environment)


@pytest.mark.parametrize(
    ("project", "twin"),
    [("acked-queue", "buggy"), ("acked-queue", "fixed"), ("msync-kv", "buggy"), ("level-hash", "buggy")],
    indirect=["project"],
)
def test_the_report_is_that_of_a_check_that_does_not_call(project: Project, twin: str) -> None:
    usual, continued = project.check(twin, "--no-explore", ready=False), project.check(twin, "--no-explore")
    assert continued.report == usual.report
    assert bool(continued.report["findings"]) == (twin == "buggy")


@pytest.mark.parametrize("project", ["acked-queue"], indirect=True)
def test_the_program_of_the_check_is_started_seldom(project: Project) -> None:
    jobs = ("--no-explore", "--jobs", "1")
    usual, continued = project.check("fixed", *jobs, ready=False), project.check("fixed", *jobs)
    executed = usual.report["run"]["states"]["executed"]
    recorded, uncrashed, damaged, samples = 1, 2, 1, executed.bit_length()
    assert usual.starts == recorded + uncrashed + executed + damaged
    one_more_to_compare, one_more_image = 1, 1
    assert continued.starts == recorded + uncrashed + damaged + samples + one_more_to_compare + one_more_image


@pytest.mark.parametrize("project", ["btree-split"], indirect=True)
def test_explored_runs_do_not_wait(project: Project) -> None:
    usual, continued = (project.check("fixed", ready=ready, counts=False) for ready in (False, True))
    assert continued.report == usual.report
    assert continued.report["run"]["states"]["explored"] > 0


@pytest.mark.parametrize("project", ["acked-queue"], indirect=True)
def test_a_check_that_cannot_wait_is_run_as_usual_and_the_report_names_the_reason(project: Project) -> None:
    usual, refused = project.check("buggy", ready=False), project.check("buggy", threads=True)
    assert [each for each in refused.warnings if each not in usual.warnings] == [
        "crashcheck_ready() was not used, and each run of the check started from the beginning: the check has 2 "
        "threads there: call it before they start"
    ]
    assert refused.report["findings"] == usual.report["findings"]


_LOOKED_TOO_EARLY = "struct stat now; stat(argv[2], &now); if (now.st_size != printed.st_size) return 1;"


@pytest.mark.parametrize("project", ["acked-queue"], indirect=True)
def test_all_is_tested_again_if_the_check_depends_on_what_was_there_before(project: Project) -> None:
    options = ("--no-explore", "--jobs", "1")
    usual = project.check("buggy", *options, ready=False, begin=_LOOKED_TOO_EARLY)
    again = project.check("buggy", *options, begin=_LOOKED_TOO_EARLY)
    note = "nothing counts of what was tested from crashcheck_ready() on, and all was tested again: the check fails"
    assert [each[: len(note)] for each in again.warnings if each not in usual.warnings] == [note]
    assert f"crashcheck: {note}" in again.stderr
    assert again.report["findings"] == usual.report["findings"]
    assert again.report["run"]["states"] == usual.report["run"]["states"]
    assert again.starts > usual.starts
