"""One trace of stores and system calls, of programs that crashcheck-cc built: its order, and what is found with it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

from crashcheck.analyzer.compile.facts import ProgramFacts
from crashcheck.analyzer.trace import replay
from crashcheck.analyzer.trace.reader import Trace, read
from crashcheck.runtime.record import Recording, Workload, record
from crashcheck.runtime.trace_format import Kind, StoreFlag
from support import compilers
from support.command_line import run_crashcheck
from support.paths import RUNTIME_PROGRAMS

SLOW = pytest.mark.slow
UPDATES = (Kind.STORE, Kind.NAME_CREATE, Kind.NAME_MKDIR, Kind.NAME_RENAME, Kind.TRUNCATE)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory, commands: Path) -> str:
    folder = tmp_path_factory.mktemp("table")
    plain, target = folder / "plain.o", folder / "table_and_log"
    subprocess.run(
        [*compilers.c_compiler(), "-c", str(RUNTIME_PROGRAMS / "without_hooks.c"), "-o", str(plain)], check=True
    )
    flags = ["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-fno-inline"]
    sources = [str(RUNTIME_PROGRAMS / "table_and_log.c"), str(plain)]
    compiler = str(commands / "crashcheck-cc")
    subprocess.run([compiler, *flags, *sources, "-o", str(target), "-lpthread"], cwd=folder, check=True)
    return str(target)


def traced(program: str, folder: Path, *words: str) -> tuple[Trace, Recording]:
    recording = record(Workload([program, "{pool}", *words], ["*"], timeout_s=60.0, recorder="syscalls"), folder)
    trace = read(recording.trace)
    assert replay.check(trace, recording.first, recording.pool).whole
    return trace, recording


def test_stores_of_all_threads_and_processes_are_in_order_with_the_calls(program: str, tmp_path: Path) -> None:
    trace, _ = traced(program, tmp_path / "run", "share")
    facts = ProgramFacts.load((program,))
    found = []
    for index in np.flatnonzero(np.isin(trace.events["kind"], np.array(UPDATES, dtype=np.uint8))).tolist():
        event = trace.events[index]
        site = trace.site(int(event["site"]), facts)
        what = Kind(int(event["kind"])).name
        if event["kind"] == Kind.STORE:
            what = trace.data(index).decode() + " (compared)" * bool(event["flags"] & StoreFlag.COMPARED)
        found.append((what, int(event["thread"]), site.function if site is not None else ""))
    assert found == [
        ("NAME_CREATE", 1, "map_table"),
        ("TRUNCATE", 1, "map_table"),
        ("parent", 1, "put"),
        ("thread", 2, "put"),
        ("child", 3, "share"),
        ("NAME_MKDIR", 1, "share"),
        ("unhooked (compared)", 1, "share"),  # where it was found
        ("NAME_RENAME", 1, "share"),
    ]
    starts = trace.events[trace.events["kind"] == Kind.THREAD_START]
    assert [len(set(starts["payload"][:2])), len(set(starts["payload"]))] == [1, 2]


def test_calls_and_stores_have_the_stacks_of_instrumented_code(program: str, tmp_path: Path) -> None:
    trace, _ = traced(program, tmp_path / "run", "publish")
    facts = ProgramFacts.load((program,))
    stacks = {}
    for kind in (Kind.STORE, Kind.NAME_RENAME, Kind.SYNC_BEGIN):
        event = trace.events[trace.events["kind"] == kind][0]
        sites = [trace.site(each, facts) for each in (int(event["site"]), *trace.stack(int(event["stack"])))]
        stacks[kind] = [site.function if site is not None else "" for site in sites]
    assert stacks == {
        Kind.STORE: ["put", "publish", "main"],
        Kind.NAME_RENAME: ["publish", "main"],
        Kind.SYNC_BEGIN: ["sync_table", "publish", "main"],
    }


@pytest.mark.parametrize(
    ("step", "check", "message"),
    [
        (
            "publish",
            "test ! -e {pool}/table || grep -q record {pool}/table",
            "`table` can hold nothing but zeros after a crash: "
            "`publish` (table_and_log.c:62) renames `table.new` to `table` before its data, "
            "written at table_and_log.c:34, are synced",
        ),
        pytest.param(
            "checkpoint",
            "test ! -s {stdout} || grep -qs record {pool}/log {pool}/table",
            "`table` can hold nothing but zeros after a crash while `log` is gone: "
            "`checkpoint` (table_and_log.c:75) removes `log` before `table`, written at table_and_log.c:34, is synced",
            marks=SLOW,
        ),
        pytest.param(
            "create",
            "test ! -s {stdout} || grep -qs record {pool}/table",
            "the rename of `table.new` to `table` can be lost in a crash although `created` was printed "
            "(`create`, table_and_log.c:84)",
            marks=SLOW,
        ),
    ],
)
def test_a_sync_that_is_missing_between_a_store_and_a_call_is_found_and_its_twin_is_clean(
    program: str, tmp_path: Path, environment: dict[str, str], step: str, check: str, message: str
) -> None:
    def findings(*words: str) -> list[str]:
        command = json.dumps([program, "{pool}", step, *words])
        workload = f'[workload]\ncommand = {command}\nrecorder = "syscalls"\n'
        rest = f'[pool]\nfiles = ["*"]\n[model]\nname = "ext4"\n[check]\ncommand = "{check}"\n'
        (tmp_path / "crashcheck.toml").write_text(workload + rest)
        done = run_crashcheck("run", "--no-fixes", "--format", "json=report.json", cwd=tmp_path, env=environment)
        assert done.returncode in (0, 1), done.stderr
        report = json.loads((tmp_path / "report.json").read_text())
        assert report["run"]["stop_reason"] == "exhausted"
        return [found["message"] for found in report["findings"]]

    assert findings("late") == [message]
    assert findings() == []
