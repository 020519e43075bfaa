"""Parsers of recorded system calls and of what is kept of runs take any input, as those in test_parsers do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crashcheck.analyzer.trace import replay
from crashcheck.analyzer.trace.calls import Allocate, Names, allocations, injected_faults, name_events
from crashcheck.analyzer.trace.dump import lines
from crashcheck.analyzer.trace.reader import ROOT, read
from crashcheck.errors import CrashcheckError
from crashcheck.runtime import trace_format as fmt
from crashcheck.runtime.trace_format import Kind
from support.fuzzing import WholeFile, fuzzed, must_take
from support.parsers.recorded import run_of_calls
from support.tracing import CallsBuilder


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> WholeFile:
    return WholeFile(run_of_calls(tmp_path_factory.mktemp("calls") / "trace.cct").save())


places = st.tuples(st.integers(0, 2), st.integers(0, 2400)).map(
    lambda at: fmt.HEADER_BYTES + at[0] * fmt.CHUNK_BYTES + at[1]
)


@fuzzed
@given(st.lists(st.tuples(places, st.binary(min_size=1, max_size=4)), max_size=4))
def test_traces_of_system_calls(calls: WholeFile, edits: list[tuple[int, bytes]]) -> None:
    path = calls.path
    image = np.frombuffer(calls.content, np.uint8).copy()
    for at, new in edits:
        image[at : at + len(new)] = np.frombuffer(new, np.uint8)[: max(0, len(image) - at)]
    path.write_bytes(image.tobytes())

    def every(path: Path) -> None:
        trace = read(path)
        for line in lines(trace, None, True):
            assert line
        for events in (name_events, allocations, injected_faults):
            list(events(trace))
        replay.check(trace, path.parent, path.parent)

    must_take(every, path)


def test_an_output_of_an_unknown_kind_is_damage(tmp_path: Path) -> None:
    t = CallsBuilder(tmp_path / "trace.cct")
    t.event(Kind.OUTPUT, aux=99)
    with pytest.raises(CrashcheckError, match="output of kind 99"):
        t.trace()


def test_a_fault_of_a_call_whose_name_is_damaged_is_shown(tmp_path: Path) -> None:
    t = CallsBuilder(tmp_path / "trace.cct")
    t._record(Kind.FAULT, b"\xff\0a", aux=5)
    assert [fault.call for fault in injected_faults(t.trace())] == ["\ufffd"]


def test_a_directory_within_itself_has_a_path_for_each_of_its_entries(tmp_path: Path) -> None:
    names = Names({(ROOT, "d"): 2, (2, "d"): 2, (2, "a"): 3})
    assert names.paths() == {"d": 2, "d/d": 2, "d/a": 3}


def test_zeros_over_a_large_range_take_no_time_for_what_holds_no_data(tmp_path: Path) -> None:
    t = CallsBuilder(tmp_path / "trace.cct")
    t.open("a")
    t.truncate("a", 1 << 60)
    t.allocate("a", 0, 1 << 60, Allocate.ZERO_RANGE | Allocate.KEEP_SIZE)
    (tmp_path / "first").mkdir()
    files = replay.check(t.trace(), tmp_path / "first", tmp_path / "first").files
    assert [file.path for file in files] == ["a"]


def test_a_symbolic_link_that_the_first_image_lacks_is_a_difference(tmp_path: Path) -> None:
    t = CallsBuilder(tmp_path / "trace.cct")
    t.inode("link", 0o120777, existed=True)
    t.open("a")
    (tmp_path / "first").mkdir()
    assert not replay.check(t.trace(), tmp_path / "first", tmp_path / "first").whole
