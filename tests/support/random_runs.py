"""Random small runs of a program with typed and untyped sites, for properties."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from crashcheck.analyzer.behaviours import Behaviours
from crashcheck.runtime.trace_format import StoreFlag
from support.examples_tried import examples
from support.scripts import Script, site

SETTINGS = settings(
    max_examples=examples(50),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)

# Two objects of 16 bytes in one line, one of them across two lines, and places to write them.
SITES = (
    site("pair.a", ("pair", "a", 0, 8), line=1),
    site("pair.b", ("pair", "b", 8, 8), line=2),
    site("pair", kind="copy", line=3),
    site(kind="fill", line=4),
    site(line=5),
)
OBJECTS = (0, 56, 128)

Step = tuple[str, Any, Any]


def runs(most: int = 9) -> st.SearchStrategy[list[Step]]:
    store = st.tuples(st.just("store"), st.integers(1, 5), st.sampled_from(OBJECTS))
    loose = st.tuples(st.just("nt"), st.just(0), st.sampled_from(OBJECTS))
    flush = st.tuples(st.sampled_from(["clwb", "clwb", "clflush"]), st.just(0), st.sampled_from([0, 64, 128]))
    fence = st.just(("fence", 0, 0))
    marks = st.tuples(st.sampled_from(["begin", "end", "output"]), st.just(0), st.just(0))
    sync = st.just(("sync", 0, 0))
    return st.lists(st.one_of(store, store, store, flush, flush, fence, loose, marks, sync), min_size=1, max_size=most)


def script_of(folder: Path, steps: list[Step]) -> Script:
    script = Script(folder, *SITES)
    ended = printed = 0
    for what, number, offset in steps:
        match what:
            case "store":
                delta = {1: 0, 2: 8, 3: 0}.get(number)
                at = offset + 8 if number == 2 else offset
                script.at(number, at, size=16 if number in (3, 4) else 8, delta=delta)
            case "nt":
                script.trace.site = 0
                script.trace.store("f", offset, 8, 1, int(StoreFlag.NT))
            case "clwb":
                script.trace.clwb("f", offset)
            case "clflush":
                script.trace.clflush("f", offset)
            case "fence":
                script.trace.sfence()
            case "sync":
                script.trace.msync("f")
            case "begin":
                script.trace.begin(ended + 1)
            case "end":
                ended += 1
                script.trace.end(ended)
            case "output":
                printed += 1
                script.trace.output(printed)
    return script


def found_in(steps: list[Step], model: str) -> Behaviours:
    with tempfile.TemporaryDirectory() as folder:
        return script_of(Path(folder), steps).found(model)
