"""A run that reuses verdicts finds what a run from nothing finds, after any edit, and after `kill -9`."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from crashcheck.runtime.build import build_runtime
from support import compilers
from support.command_line import run_crashcheck
from support.paths import ROOT

pytestmark = pytest.mark.slow

STORE = """
#include <fcntl.h>
#include <immintrin.h>
#include <sys/mman.h>
#include <unistd.h>
#include "record.h"

int main(int count, char **words)
{
    (void)count;
    int fd = open(words[1], O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, 4096))
        return 1;
    struct record *records = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    for (int i = 0; i < 12; i++) {
        records[i].value = i + 1;
        _mm_clwb(&records[i].value);
        _mm_sfence();
        records[i].valid = 1;
        _mm_clwb(&records[i].valid);
        _mm_sfence();
    }
    return 0;
}
"""
CHECK = """
#include <stdio.h>
#include <stdlib.h>
#include "record.h"

int accepts(const struct record *record, int number);

int main(int count, char **words)
{
    struct record records[12] = {{0}};
    int least = 0;
    FILE *pool = fopen(words[1], "rb"), *limit = fopen("limit", "r");
    (void)count;
    if (!limit || fscanf(limit, "%d", &least) != 1)
        return 3;
    if (!pool || fread(records, sizeof *records, 12, pool) == 0)
        return 0;
    for (int i = 0; i < 12; i++) {
        if (records[i].valid && !accepts(&records[i], i))
            return 1;
        if (STRICT && records[i].value && !records[i].valid && i % 5 == 4)
            return 4;
        if (records[i].valid && records[i].value < least)
            return 5;
        if (getenv("NO_FIFTH") && i == 4 && records[i].valid && !records[i + 1].valid)
            return 6;
    }
    return 0;
}
"""
FILES = {
    "store.c": STORE,
    "check.c": CHECK,
    "accepts.c": '#include "record.h"\nint accepts(const struct record *r, int i) { return r->value == i + 1; }\n',
    "record.h": "struct record { int value; char apart[60]; int valid; char end[60]; };\n",
    "limit": "0\n",
    "build.sh": "crashcheck-cc -O1 -mclwb -o store store.c && $CC -shared -fPIC -o libaccepts.so accepts.c && "
    "$CC -O1 -DSTRICT=0 -o check check.c ./libaccepts.so\n",
    "crashcheck.toml": """
[build]
command = "sh ./build.sh"
[workload]
command = "./store {pool}/records"
[pool]
files = ["records"]
[check]
command = "./check {pool}/records"
[model]
name = "px86"
""",
}


@dataclass
class Project:
    """A store and its check, with a cache of its own."""

    folder: Path
    environment: dict[str, str]

    def edit(self, file: str, old: str, new: str) -> None:
        text = (self.folder / file).read_text()
        assert old in text
        (self.folder / file).write_text(text.replace(old, new, 1))

    def run(self, *options: str) -> dict[str, Any]:
        done = run_crashcheck(
            *("run", "--no-fixes", "--jobs", "2", "--format", "json", *options),
            cwd=self.folder,
            env=self.environment,
        )
        assert done.returncode in (0, 1), done.stderr
        report: dict[str, Any] = json.loads(done.stdout)
        return report


def counts(report: dict[str, Any]) -> dict[str, int]:
    return dict(report["run"]["states"])


def findings(report: dict[str, Any]) -> list[Any]:
    """All of the findings but how long their checks took."""
    found = [*report["findings"], *report["uncertain"]]
    return [{**each, "verdict": {**each["verdict"], "seconds": 0}} for each in found]


@pytest.fixture
def project(tmp_path: Path, environment: dict[str, str]) -> Project:
    folder, cache = tmp_path / "project", tmp_path / "cache"
    folder.mkdir()
    cache.mkdir()
    built = build_runtime().shared.parent
    (cache / built.name).symlink_to(built)
    for name, text in FILES.items():
        (folder / name).write_text(text)
    return Project(folder, {**environment, "CRASHCHECK_CACHE": str(cache), "CC": " ".join(compilers.c_compiler())})


FLUSH = "_mm_clwb(&records[i].value);"
Edit = Callable[[Project], None]
EDITS: dict[str, Edit] = {
    "nothing": lambda project: None,
    "a variable": lambda project: project.environment.update(NO_FIFTH="1"),
    "a file that the check reads": lambda project: project.edit("limit", "0", "2"),
    "the library": lambda project: project.edit("accepts.c", "== i + 1", "== i + 1 && i != 7"),
    "the library again": lambda project: project.edit("accepts.c", " && i != 7", ""),
    "the recovery": lambda project: project.edit("check.c", "i % 5 == 4", "i % 5 == 3"),
    "a compiler flag": lambda project: project.edit("build.sh", "STRICT=0", "STRICT=1"),
    "the flag again": lambda project: project.edit("build.sh", "STRICT=1", "STRICT=0"),
    "a flush": lambda project: project.edit("store.c", FLUSH, f"if (i != 3) {FLUSH}"),
    "the model": lambda project: project.edit("crashcheck.toml", "px86", "eadr"),
    "the model again": lambda project: project.edit("crashcheck.toml", "eadr", "px86"),
    "a store": lambda project: project.edit("store.c", "records[i].value = i + 1", "records[i].value = i + (i != 9)"),
    "a comment that suppresses": lambda project: project.edit(
        "store.c", "records[i].valid = 1;", "records[i].valid = 1; // crashcheck: ignore[*] known\n"
    ),
    "a header": lambda project: project.edit("record.h", "apart[60]", "apart[124]"),
}


def test_after_each_edit_the_findings_are_those_of_a_run_from_nothing(project: Project) -> None:
    project.run("--reuse")
    seen = []
    for name, edit in EDITS.items():
        edit(project)
        fresh = run_or_refusal(project)
        kept = run_or_refusal(project, "--reuse")
        if isinstance(fresh, str) or isinstance(kept, str):
            assert fresh == kept, name
            continue
        seen.append(bool(fresh["findings"]))
        assert findings(kept) == findings(fresh), name
        now, then = counts(kept), counts(fresh)
        assert now["executed"] + now["reused"] == then["executed"] + then["explored"], name
        assert (now["failing"], now["flaky"]) == (then["failing"], then["flaky"]), name
        again = run_or_refusal(project, "--reuse")
        assert not isinstance(again, str), name
        assert counts(again)["executed"] == 0, name
        assert counts(again)["reused"] == now["executed"] + now["reused"], name
        assert without_runs_own(again) == without_runs_own(kept), name
    assert {True, False} == {*seen}


def without_runs_own(report: dict[str, Any]) -> dict[str, Any]:
    """A report without what differs from run to run: how long it took, and who executed the states."""
    own = ("seconds", "phases", "states", "trace", "summary", "caveats")
    return {**report, "run": {name: value for name, value in report["run"].items() if name not in own}}


def run_or_refusal(project: Project, *options: str) -> dict[str, Any] | str:
    """The report; the kind of error where the check rejects an image that nothing crashed."""
    done = run_crashcheck(
        *("run", "--no-fixes", "--no-explore", "--jobs", "2", "--format", "json", *options),
        cwd=project.folder,
        env=project.environment,
    )
    if done.returncode == 2:
        assert "[check-rejects-final]" in done.stderr, done.stderr
        return "check-rejects-final"
    report: dict[str, Any] = json.loads(done.stdout)
    return report


KILLED = """
import os, signal, sys
from crashcheck.checker.kept.verdicts import KeptVerdicts
from crashcheck.cli import main
keep, left = KeptVerdicts.keep, int(sys.argv[1])
def kept(self, *given):
    global left
    left -= 1
    keep(self, *given)
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)
KeptVerdicts.keep = kept
import crashcheck.checker.kept.verdicts as verdicts
verdicts._BATCH = 3
main(["run", "--reuse", "--no-fixes", "--format", "json"])
"""


def test_a_run_that_is_killed_anywhere_is_continued_with_the_findings_of_an_unbroken_one(project: Project) -> None:
    project.edit("store.c", FLUSH, f"if (i != 3) {FLUSH}")
    unbroken = project.run()
    whole = counts(unbroken)["executed"] + counts(unbroken)["explored"]
    assert findings(unbroken)
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    drawing = random.Random(seed)
    for _ in range(4):
        killed = subprocess.run(
            [sys.executable, "-c", KILLED, str(drawing.randint(1, 12))],
            cwd=project.folder,
            env={**project.environment, "PYTHONPATH": str(ROOT / "src")},
            capture_output=True,
        )
        assert killed.returncode in (-signal.SIGKILL, 0), killed.stderr
        project.run("--reuse", "--states", str(drawing.randint(1, 6)))
    last = project.run("--reuse")
    assert findings(last) == findings(unbroken)
    assert counts(last)["reused"] > 0
    assert counts(last)["executed"] + counts(last)["reused"] + counts(last)["explored"] == whole


KILLED_ANYWHERE = """
import os, signal, sys
left = int(sys.argv[1])
def count(frame, event, argument):
    global left
    left -= event == "call"
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)
from crashcheck.cli import main
sys.setprofile(count)
main(sys.argv[2:])
sys.setprofile(None)
print(-left, file=sys.stderr)
"""


def test_a_run_that_is_killed_at_any_call_is_resumed_with_the_findings_of_an_unbroken_one(project: Project) -> None:
    """The moments are calls of functions of crashcheck's main process, from its first to its last."""
    project.edit("store.c", FLUSH, f"if (i != 3) {FLUSH}")

    def ended(call: int, *options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", KILLED_ANYWHERE, str(call), "run", "--no-fixes", "--format", "json", *options],
            cwd=project.folder,
            env={**project.environment, "PYTHONPATH": str(ROOT / "src")},
            capture_output=True,
            text=True,
        )

    unbroken = ended(-1)
    expected, calls = findings(json.loads(unbroken.stdout)), int(unbroken.stderr.splitlines()[-1])
    assert expected
    seed = random.randrange(1 << 32)
    print(f"seed {seed}, {calls} calls")
    drawing = random.Random(seed)
    for _ in range(4):
        killed = ended(drawing.randint(1, calls), "--resume")
        assert killed.returncode in (-signal.SIGKILL, 0), killed.stderr  # a resumed run has fewer calls
    last = project.run("--resume")
    assert findings(last) == expected
    assert last["run"]["stop_reason"] == "exhausted"


def test_stretches_that_explored_runs_decided_are_not_explored_again(
    tmp_path: Path, environment: dict[str, str], project: Project
) -> None:
    """With a store of 200 records, whose check is explored, or run one by one where it cannot be."""
    project.edit("store.c", "i < 12", "i < 30")
    project.edit("store.c", "        _mm_sfence();\n        records[i].valid", "        records[i].valid")
    project.edit("check.c", "!accepts(&records[i], i)", "records[i].value > i + 1")
    first = counts(project.run("--reuse"))
    assert first["reused"] == 0
    again = counts(project.run("--reuse"))
    assert again["executed"] + again["explored"] == 0
    assert again["reused"] == first["executed"] + first["explored"] > 0
