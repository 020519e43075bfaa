"""A trace of system calls: inodes, names and what changes them, read back through the real reader."""

from __future__ import annotations

from pathlib import Path

import pytest

from crashcheck.analyzer.trace import calls
from crashcheck.analyzer.trace.calls import Names
from crashcheck.analyzer.trace.dump import lines
from crashcheck.analyzer.trace.reader import ROOT, CallSite, Trace, read
from crashcheck.errors import CrashcheckError
from crashcheck.runtime.trace_format import Kind, OutputKind, Recorder
from support.outputs import outputs
from support.tracing import CallsBuilder, TraceBuilder


def builder(tmp_path: Path) -> CallsBuilder:
    return CallsBuilder(tmp_path / "t.cct", {"d/": None, "d/f": b"old", "g": b"12"})


def last_paths(trace: Trace) -> dict[str, int]:
    names = Names.first(trace)
    for event in calls.name_events(trace):
        names.apply(event)
    return names.paths()


def test_inodes_have_the_names_that_were_there_at_first(tmp_path: Path) -> None:
    t = builder(tmp_path)
    t.files["again"] = t.files["g"]
    t.event(Kind.INODE_DEF, file=t.files["g"], aux=0o100644, size=1, payload=ord("h"), offset=2, flags=1)
    trace = t.trace()
    assert trace.recorder == Recorder.SYSCALLS
    assert {i.id: (i.paths, i.is_folder, i.existed, i.first_size) for i in trace.inodes.values()} == {
        ROOT: (("",), True, True, 0),
        2: (("d",), True, True, 0),
        3: (("d/f",), False, True, 3),
        4: (("g", "h"), False, True, 2),
    }
    assert {number: file.path for number, file in trace.files.items()} == {3: "d/f", 4: "g"}
    assert last_paths(trace) == {"d": 2, "d/f": 3, "g": 4, "h": 4}


def test_each_call_on_names_is_one_value(tmp_path: Path) -> None:
    t = builder(tmp_path)
    t.open("d/new")
    t.link("d/new", "other")
    t.move("d/new", "d/f")
    t.exchange("g", "other")
    t.mkdir("e")
    t.rmdir("e")
    t.symlink("no/where", "s")
    t.remove("s")
    found = list(calls.name_events(t.trace()))
    assert [type(event).__name__ for event in found] == [
        *("Create", "Link", "Rename", "RenameExchange", "MakeFolder", "RemoveFolder", "Symlink", "Unlink"),
    ]
    first = found[0].event
    assert found[:4] == [
        calls.Create(first, 5, 2, "new"),
        calls.Link(first + 1, 5, ROOT, "other"),
        calls.Rename(first + 2, 5, 2, "new", 2, "f", 3),
        calls.RenameExchange(first + 3, 4, ROOT, "g", ROOT, "other", 5),
    ]
    symlink = found[6]
    assert isinstance(symlink, calls.Symlink)
    assert (symlink.name, symlink.target) == ("s", "no/where")
    assert last_paths(t.trace()) == {"d": 2, "d/f": 5, "g": 5, "other": 4}


def test_what_is_below_a_renamed_folder_moves_with_it(tmp_path: Path) -> None:
    t = builder(tmp_path)
    t.move("d", "e")
    t.open("e/x")
    assert last_paths(t.trace()) == {"e": 2, "e/f": 3, "e/x": 5, "g": 4}


def test_names_may_hold_any_byte_but_a_slash_and_zero(tmp_path: Path) -> None:
    t = builder(tmp_path)
    t.open("a\nb\udcff")
    assert calls.name_events(t.trace())[0].name == "a\nb\udcff"


def test_a_file_without_a_name_gets_one_by_link(tmp_path: Path) -> None:
    t = builder(tmp_path)
    t.tmpfile("#1")
    t.write("#1", 0, b"x")
    t.link("#1", "named")
    trace = t.trace()
    assert trace.inodes[5].paths == ()
    assert last_paths(trace)["named"] == 5


def test_allocations_outputs_and_call_sites_are_read_back(tmp_path: Path) -> None:
    t = builder(tmp_path)
    t.site = t.call_site("/usr/bin/x", 0x1234)
    t.allocate("g", 4096, 1 << 33, calls.Allocate.PUNCH_HOLE | calls.Allocate.KEEP_SIZE)
    t.acknowledge(OutputKind.SOCKET, b"+OK\r\n")
    t.output(7)
    trace = t.trace()
    (allocation,) = calls.allocations(trace)
    assert (allocation.inode, allocation.offset, allocation.size, allocation.mode) == (4, 4096, 1 << 33, 3)
    assert outputs(trace) == [(OutputKind.SOCKET, b"+OK\r\n"), (OutputKind.STDOUT, b"")]
    assert trace.call_sites[int(trace.events["site"][allocation.event])] == CallSite("/usr/bin/x", 0x1234)


def test_more_inodes_than_sixteen_bits_number(tmp_path: Path) -> None:
    t = builder(tmp_path)
    for number in range(66_000):
        t.inode(f"n{number}", 0o100644, existed=True)
    t.write("n65999", 0, b"x")
    trace = t.trace()
    assert trace.inodes[int(trace.events["file"][-1])].paths == ("n65999",)


def test_a_dump_shows_inodes_and_names(tmp_path: Path) -> None:
    t = builder(tmp_path)
    t.tmpfile("#1")
    t.open("d/new")
    t.move("d/new", "d/f")
    t.symlink("x", "s\n")
    t.exchange("g", "d/f")
    t.allocate("g", 0, 4096)
    t.acknowledge(OutputKind.PIPE, b"ok\n")
    shown = list(lines(t.trace()))
    assert shown[1:8] == [
        "# inode 1: folder . (there at first)",
        "# inode 2: folder d (there at first)",
        "# inode 3: file d/f (3 bytes at first)",
        "# inode 4: file g (2 bytes at first)",
        "# inode 5: file without a name (does not exist at first)",
        "# inode 6: file d/new (does not exist at first)",
        "# inode 7: symlink s<0a> (does not exist at first)",
    ]
    assert [line.split(" T1 ")[1] for line in shown if " T1 " in line and " inode-def " not in line] == [
        "thread-start aux=1 payload=100",
        "name-create inode=6 folder=2 name=new",
        "name-rename inode=6 folder=2 name=new to_folder=2 to_name=f replaced=3",
        "name-symlink inode=7 folder=1 name=s<0a> target=x",
        "name-exchange inode=4 folder=1 name=g to_folder=2 to_name=f other=6",
        "allocate inode-6+0x0,0 payload=4096",
        "output pipe = ok<0a>",
    ]


@pytest.mark.parametrize("change", ["unknown inode", "no inode", "not a directory", "slash", "cut", "recorder"])
def test_damaged_names_are_found(tmp_path: Path, change: str) -> None:
    t = builder(tmp_path)
    t.open("d/new")
    fields = t.records[-1][2]
    if change == "unknown inode":
        fields["file"] = 99
    elif change == "no inode":
        fields["file"] = 0
    elif change == "not a directory":
        fields["folder"] = 3
    elif change == "slash":
        t.blob[-1:] = b"/"
    elif change == "cut":
        fields["size"] -= 1
    else:
        t.recorder = 9  # type: ignore[assignment]
    with pytest.raises(CrashcheckError) as error:
        read(t.save())
    assert error.value.slug == "trace-corrupt"


def test_a_trace_of_the_linked_recorder_has_no_inodes(tmp_path: Path) -> None:
    t = TraceBuilder(tmp_path / "t.cct")
    t.store("a", 0, 1, 1)
    trace = t.trace()
    assert (trace.recorder, trace.inodes, list(calls.name_events(trace))) == (Recorder.LINKED, {}, [])
