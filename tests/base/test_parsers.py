"""Every parser takes any input: it returns a value or raises an error for users, and nothing else.

`support/fuzzing.py` makes the inputs; `CRASHCHECK_FUZZ_EXAMPLES=100000` tries that many for each parser.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crashcheck.analyzer.compile import facts
from crashcheck.analyzer.trace.dump import lines
from crashcheck.analyzer.trace.reader import read
from crashcheck.errors import CrashcheckError
from crashcheck.runtime import trace_format as fmt
from support.fuzzing import Edits, WholeFile, changed, changes, fuzzed, must_take
from support.parsers import PARSERS
from support.parsers.compiled import FACTS
from support.parsers.recorded import run_of_stores


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[bytes]]:
    return functools.cache(lambda name: [*PARSERS[name].documents(tmp_path_factory.mktemp("documents"))])


@pytest.mark.parametrize("name", PARSERS)
@fuzzed
@given(changes, st.integers(0, 9))
def test_documents(
    tmp_path_factory: pytest.TempPathFactory,
    documents: Callable[[str], list[bytes]],
    name: str,
    edits: Edits,
    which: int,
) -> None:
    parser, valid = PARSERS[name], documents(name)
    with contextlib.suppress(CrashcheckError, *parser.allowed):
        parser.parse(changed(valid[which % len(valid)], edits), tmp_path_factory.mktemp("document"))


@fuzzed
@given(st.text(max_size=20))
def test_values_of_options(text: str) -> None:
    PARSERS["option values"].parse(text.encode("utf-8", "replace"), Path())


@fuzzed
@given(changes)
def test_program_facts(edits: Edits) -> None:
    must_take(partial(facts.decode, origin="program"), changed(facts.encode(FACTS)[1], edits))


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> WholeFile:
    return WholeFile(run_of_stores(tmp_path_factory.mktemp("traces") / "trace.cct").save())


# Where a trace of a few chunks has bytes that mean something: the file's header, and each chunk's first kilobyte.
places = st.one_of(
    st.integers(0, fmt.HEADER.itemsize - 1),
    st.tuples(st.integers(0, 4), st.integers(0, 1000)).map(
        lambda at: fmt.HEADER_BYTES + at[0] * fmt.CHUNK_BYTES + at[1]
    ),
)
_POWERS = [(1 << n).to_bytes(8, "little")[:size] for n in (0, 7, 31, 32, 63) for size in (1, 4, 8)]
words = st.one_of(st.binary(min_size=1, max_size=8), st.sampled_from(_POWERS), st.just(b"\xff" * 4))


@fuzzed
@given(st.lists(st.tuples(places, words), max_size=6), st.one_of(st.none(), st.integers(0, 1 << 21)))
def test_traces(trace: WholeFile, edits: list[tuple[int, bytes]], cut: int | None) -> None:
    path = trace.path
    image = np.frombuffer(trace.content, np.uint8).copy()
    for at, new in edits:
        image[at : at + len(new)] = np.frombuffer(new, np.uint8)[: max(0, len(image) - at)]
    path.write_bytes(image[:cut].tobytes())

    def every(path: Path) -> None:
        for line in lines(read(path), None, True):
            assert line

    must_take(every, path)
