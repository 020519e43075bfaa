"""The text of a trace."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from crashcheck.analyzer.trace.dump import lines
from crashcheck.runtime.trace_format import Kind, SyncKind
from support.tracing import TraceBuilder


def test_a_line_describes_what_an_event_did(tmp_path: Path) -> None:
    t = TraceBuilder(tmp_path / "t")
    t.file("a", 4096)
    t.begin(1)
    t.store("a", 16, 4, 258)
    t.nt_store("a", 64, 20, bytes(20))
    t.clwb("a", 16)
    t.sfence()
    with t.thread(2):
        t.append("a", 4096, b"hello")
    t.sync(SyncKind.MSYNC, "a", 0, 4096)
    t.fsync("a", failed=True)
    t.truncate("a", 10)
    t.output(3)
    t.end(1)
    t.event(Kind.EXIT, aux=1)
    assert list(lines(t.trace())) == [
        "# crashcheck trace, version 8: 15 events, 1 files",
        "# file 1: a (4096 bytes at first)",
        " 1 T1 file-def a+0x1000,1 = a flags=0x1",
        " 2 T1 mark-begin aux=1",
        " 3 T1 store a+0x10,4 = 02 01 00 00",
        " 4 T1 store a+0x40,20 = 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 … (20 bytes) [nt]",
        " 5 T1 flush a+0x10,1 clwb",
        " 6 T1 fence sfence",
        " 7 T2 write a+0x1000,5 = 68 65 6c 6c 6f [append]",
        " 8 T1 sync-begin a+0x0,4096 msync",
        " 9 T1 sync-end a+0x0,4096 msync payload=8",
        "10 T1 sync-begin a+0x0,0 fsync",
        "11 T1 sync-end a+0x0,0 fsync payload=10 flags=0x1",
        "12 T1 truncate a+0xa,0",
        "13 T1 output offset=0x3 stdout",
        "14 T1 mark-end aux=1",
        "15 T1 exit aux=1",
    ]


def test_of_several_processes_each_event_names_its_own(tmp_path: Path) -> None:
    t = TraceBuilder(tmp_path / "t")
    t.file("a", 4096)
    t.store("a", 0, 1, 7)
    with t.thread(1, pid=101):
        t.store("a", 1, 1, 7)
    assert [line.split()[1] for line in lines(t.trace()) if "store" in line] == ["T1/100", "T1/101"]


def test_reads_are_listed_on_demand_before_the_event_that_follows(tmp_path: Path) -> None:
    t = TraceBuilder(tmp_path / "t")
    t.file("a", 4096)
    t.store("a", 0, 1, 7)
    t.load("a", 32, 4)
    t.loads_left_out(True)
    t.store("a", 8, 1, 7)
    t.loads_left_out(False)
    t.load("a", 64)
    trace = t.trace()
    assert list(lines(trace, loads=True))[2:] == [
        "1 T1 file-def a+0x1000,1 = a flags=0x1",
        "2 T1 store a+0x0,1 = 07",
        "3 T1 load a+0x20,4",
        "3 T1 loads are left out from here",
        "3 T1 store a+0x8,1 = 07",
        "4 T1 loads are recorded again",
        "4 T1 load a+0x40,8",
    ]
    assert len(list(lines(trace))) == 5


def test_places_are_made_of_facts_and_stacks(tmp_path: Path) -> None:
    t = TraceBuilder(tmp_path / "t")
    base = t.unit(5, 2, "prog")
    t.file("a")
    t.site, t.stack = base, t.stack_def(0, base + 1)
    t.store("a", 0, 1, 7)
    sites = (
        SimpleNamespace(file="kv.c", line=42, function="put"),
        SimpleNamespace(file="main.c", line=7, function="main"),
    )
    facts = SimpleNamespace(unit={5: SimpleNamespace(sites=sites)}.__getitem__)
    trace = t.trace()
    assert list(lines(trace, facts))[-1] == "4 T1 store a+0x0,1 = 07 @ kv.c:42 put < main.c:7 main"
    assert list(lines(trace))[-1] == f"4 T1 store a+0x0,1 = 07 @ site {base} < site {base + 1}"


def test_a_name_cannot_break_a_line_and_unknown_kinds_are_shown(tmp_path: Path) -> None:
    t = TraceBuilder(tmp_path / "t")
    t.file("a\nb")
    t.event(Kind.FENCE, aux=99)
    t.records[-1][2]["kind"] = 200
    assert list(lines(t.trace()))[1:] == [
        "# file 1: a<0a>b (0 bytes at first)",
        "1 T1 file-def a<0a>b+0x0,3 = a<0a>b flags=0x1",
        "2 T1 Kind-200 aux=99",
    ]
