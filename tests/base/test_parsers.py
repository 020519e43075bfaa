"""Every parser takes any input: it returns a value or raises an error for users, and nothing else.

`support/fuzzing.py` makes the inputs; `CRASHCHECK_FUZZ_EXAMPLES=100000` tries that many for each parser.
"""

from __future__ import annotations

import contextlib
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crashcheck import config
from crashcheck.analyzer.compile import facts
from crashcheck.analyzer.compile.ir.debuginfo import SourcePosition
from crashcheck.analyzer.persistence.graph import Options
from crashcheck.analyzer.trace.dump import lines
from crashcheck.analyzer.trace.reader import read
from crashcheck.change import diff
from crashcheck.checker import baseline
from crashcheck.checker.oracles.histories import Operations
from crashcheck.checker.states.space import CrashState
from crashcheck.checker.token import Level, Token
from crashcheck.cli.init import TEMPLATE
from crashcheck.cli.ops import parse_mix, parse_size, parse_templates
from crashcheck.command import Command
from crashcheck.reports.formats import json_report
from crashcheck.runtime import trace_format as fmt
from crashcheck.runtime.trace_format import FlushKind
from support.fuzzing import Edits, WholeFile, changed, changes, fuzzed, must_take
from support.report_runs import FULL
from support.tracing import TraceBuilder

CONFIG = (
    TEMPLATE.encode()
    + b"""
[[suppress]]
file = "src/*.c"
reason = "old"
"""
)
DIFF = b"""diff --git a/one.c b/two.c
similarity index 90%
rename from one.c
rename to two.c
--- a/one.c
+++ b/two.c
@@ -1,3 +1,4 @@
 int a;
-int b;
+int c;
+int d;
 int e;
\\ No newline at end of file
diff --git "a/\\303\\244" "b/\\303\\244"
new file mode 100644
--- /dev/null
+++ "b/\\303\\244"
@@ -0,0 +1 @@
+x
"""
BASELINE = baseline.write_baseline([baseline.Known("3f9a0c12be77", ("a", "b"), "ordering", "message", "note")]).encode()
REPORT = json_report.render(FULL).encode()
_LEVELS = (Level(bytes(8), CrashState(7, True, (1, 2, 9))), Level(bytes(8), CrashState(1, False, ())))
TOKEN = str(Token("px86", Options(0, "ext4"), _LEVELS)).encode()
FACTS = facts.UnitFacts(
    source="/a.c",
    directory="/",
    compiler="clang",
    binding="llvmlite",
    sites=(facts.Site("store", (SourcePosition("/a.c", 3, 1, "f"),), "a.b", (facts.TypeStep("a", "b", 0, 8),)),),
    functions={"f": "00"},
    layouts=(facts.TypeLayout("a", 8, (facts.FieldLayout("b", 0, 8, "", 0),)),),
)


@fuzzed
@given(changes)
def test_configurations(edits: Edits) -> None:
    text = changed(CONFIG, edits).decode("utf-8", "replace")
    must_take(partial(config.parse, path=Path("/project/crashcheck.toml")), text)


@fuzzed
@given(st.text(max_size=20))
def test_values_of_options(text: str) -> None:
    for parse in (config.parse_duration, parse_mix, parse_size, lambda text: parse_templates([text]), Token.parse):
        must_take(parse, text)
    with contextlib.suppress(ValueError):
        Command.of_text(text).argv(pool="/a b")


@fuzzed
@given(changes)
def test_tokens(edits: Edits) -> None:
    must_take(Token.parse, changed(TOKEN, edits).decode("utf-8", "surrogateescape"))


@fuzzed
@given(changes)
def test_diffs(edits: Edits) -> None:
    must_take(diff.parse, changed(DIFF, edits))


@fuzzed
@given(changes)
def test_baselines(edits: Edits) -> None:
    must_take(
        partial(baseline.read_baseline, name="baseline.json"), changed(BASELINE, edits).decode("utf-8", "replace")
    )


@fuzzed
@given(changes)
def test_json_reports(edits: Edits) -> None:
    def again(text: str) -> None:
        json_report.render(json_report.load(text))

    must_take(again, changed(REPORT, edits).decode("utf-8", "replace"))


@fuzzed
@given(changes)
def test_program_facts(edits: Edits) -> None:
    must_take(partial(facts.decode, origin="program"), changed(facts.encode(FACTS)[1], edits))


@fuzzed
@given(changes)
def test_program_facts_with_a_valid_checksum(edits: Edits) -> None:
    with pytest.MonkeyPatch.context() as patch:
        document = changed(facts._pack(FACTS), edits)
        patch.setattr(facts, "_pack", lambda _: document)
        section = facts.encode(FACTS)[1]
    must_take(partial(facts.decode, origin="program"), section)


@fuzzed
@given(changes)
def test_operation_files(edits: Edits) -> None:
    operations = Operations.of(changed(b"insert 1 a\nquery 1\n\ndelete 1\n", edits))
    assert all(
        operations.shown(ordinal + 1) == line.decode("utf-8", "replace").strip()
        for ordinal, line in enumerate(operations.lines)
    )


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> WholeFile:
    t = TraceBuilder(tmp_path_factory.mktemp("traces") / "trace.cct")
    base = t.unit(7, 10, "/program")
    t.stack_def(t.stack_def(0, base + 1), base + 2)
    t.write("a", 0, bytes(range(100)))
    t.store("a", 8, 8, 7)
    t.load("a", 8, 8)
    t.loads_left_out(True)
    t.flush(FlushKind.CLWB, "a", 8, 8)
    t.sfence()
    t.msync("a", 0, 4096)
    with t.thread(2):
        t.load("a", 8, 8)
    t.save()
    return WholeFile(t.path)


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
