"""Update behaviours of small recorded programs: by function, or by calls and paths where stacks show nothing."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from crashcheck.analyzer.behaviours import BehaviourGroup, Behaviours, find_behaviours, find_groups
from crashcheck.analyzer.behaviours.calls.of_calls import find_operations_of_calls
from crashcheck.analyzer.behaviours.updates import build_nodes
from crashcheck.analyzer.persistence import build
from crashcheck.analyzer.persistence.graph import Options
from crashcheck.analyzer.trace.reader import read
from crashcheck.runtime.record import Workload, record
from support import compilers
from support.paths import RUNTIME_PROGRAMS
from support.tracing import CallsBuilder

SOURCE = RUNTIME_PROGRAMS / "tasks.c"
SCRIPT = """
use IO::Handle;
chdir $ARGV[0];
for my $i (0 .. 2) {
    open my $file, ">", "t";
    print $file $i;
    $file->flush;
    $file->sync;
    close $file;
    rename "t", "f";
    mkdir "d$i";
    link "f", "d$i/g";
    unlink "d$i/g";
}
"""
FUNCTIONS = """
import os, sys

def save(number):
    with open("t", "w") as file:
        file.write(str(number))
    os.rename("t", "f")

def mark(number):
    os.mkdir("d%d" % number)
    os.link("f", "d%d/g" % number)

os.chdir(sys.argv[1])
for i in range(3):
    for task in (save, mark):
        task(i)
"""


def found(folder: Path, *command: str, model: str = "ext4") -> Behaviours:
    recording = record(Workload(command, ["*"], timeout_s=60.0, recorder="syscalls"), folder)
    return find_behaviours(build(read(recording.trace), model, Options()), None)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    target = tmp_path_factory.mktemp("tasks") / "tasks"
    flags = ["-O1", "-fno-optimize-sibling-calls", "-fno-inline", "-fno-unroll-loops", *compilers.UNWINDABLE]
    subprocess.run([*compilers.c_compiler(), *flags, str(SOURCE), "-o", str(target)], check=True)
    return str(target)


def described(group: BehaviourGroup) -> tuple[str, int, tuple[str, ...]]:
    return group.representative.type, group.members, tuple(f"{site.function}: {site.variable}" for site in group.sites)


def test_functions_are_grouped_by_what_they_do(program: str, tmp_path: Path) -> None:
    behaviours = found(tmp_path / "run", program, "{pool}")
    assert behaviours.note == ""
    groups = list(map(described, find_groups(behaviours)))
    log = ("(append_log)", 3, ("put: write of log",))
    assert groups.count(log) == 2  # one of each line of main
    assert (
        "(replace)",
        3,
        ("replace: creation of t", "put: write of t", "replace: rename of t to f"),
    ) in groups


def test_the_representative_is_the_use_that_forgets_the_sync(program: str, tmp_path: Path) -> None:
    behaviours = found(tmp_path / "run", program, "{pool}", model="posix")
    (group,) = (group for group in find_groups(behaviours) if group.representative.type == "(replace)")
    first = [behaviours.behaviour(int(each)).first for each in sorted(group.members_by_pattern[0])]
    all_members = sorted(behaviours.behaviour(int(each)).first for rows in group.members_by_pattern for each in rows)
    assert first[0] == all_members[1]


def test_two_recordings_have_the_same_groups(program: str, tmp_path: Path) -> None:
    one, two = (find_groups(found(tmp_path / name, program, "{pool}")) for name in ("one", "two"))
    assert list(map(described, one)) == list(map(described, two))


def test_a_script_is_grouped_by_calls_and_paths(tmp_path: Path) -> None:
    """An interpreter of no known name: its own stacks are all that is known."""
    compilers.needs_tools("perl")
    unknown = shutil.copy(shutil.which("perl") or "", tmp_path / "pearl")
    behaviours = found(tmp_path / "run", str(unknown), "-e", SCRIPT, "{pool}")
    assert behaviours.note == (
        "the call stacks of pearl do not show what it does: "
        "its updates were grouped by the sequence of calls and their paths"
    )
    texts = {site.variable for site in behaviours.sites.sites}
    assert {"creation of t", "write of t", "rename of t to f", "directory d#", "link d#/g", "removal of d#/g"} <= texts
    assert max(group.members for group in find_groups(behaviours)) == 3


def test_a_program_in_python_is_grouped_by_its_functions(tmp_path: Path) -> None:
    behaviours = found(tmp_path / "run", sys.executable, "-c", FUNCTIONS, "{pool}")
    assert behaviours.note == ""
    groups = [described(group)[:2] for group in find_groups(behaviours)]
    assert sorted(groups) == [("(<module>)", 3), ("(mark)", 3), ("(save)", 3)]


def test_updates_without_a_stack_are_grouped_by_calls_and_paths(tmp_path: Path) -> None:
    trace = CallsBuilder(tmp_path / "trace.cct")
    for name in ("f2", "f3"):
        trace.open(name)
        trace.write(name, 0, b"x")
    behaviours = find_behaviours(build(trace.trace(), "ext4", Options()), None)
    assert {site.variable for site in behaviours.sites.sites} == {"creation of f#", "write of f#"}
    (group,) = find_groups(behaviours)
    assert group.members == 2
    assert behaviours.note.startswith("the call stacks of program do not show")


def test_operations_are_numbered_by_their_text_as_if_each_were_asked_for_it(tmp_path: Path) -> None:
    t = CallsBuilder(tmp_path / "t.cct", {"log": b""})
    for number in range(3):
        t.write("log", number, b"x")
        t.open("new")
        t.write("new", 0, b"y")
        t.fsync("new")
        t.move("new", f"{'abc'[number]}.data")
        t.write(f"{'abc'[number]}.data", 0, b"z")
    graph = build(t.trace(), "ext4")
    operations = find_operations_of_calls(graph, build_nodes(graph), None)
    texts = [operations.text(at) for at in range(len(operations.event))]
    known: dict[str, int] = {}
    assert operations.pattern.tolist() == [known.setdefault(text, len(known)) for text in texts]
    assert {"write of new", "write of a.data", "sync of new"} <= set(texts)
