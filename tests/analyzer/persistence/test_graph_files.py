"""`crashcheck groups --graph`: the persistence graph as GraphML and DOT."""

from __future__ import annotations

import io
import os
from pathlib import Path

import networkx as nx
import pytest

from crashcheck.analyzer.persistence import build
from crashcheck.analyzer.persistence.graph_files import annotated, rendered
from support.tracing import TraceBuilder

HOSTILE = os.fsdecode(b'a"b\\<&>\n\x01;]\xff\xc3\xa9.pm')
SHOWN = 'a"b\\<&>\\x0a\\x01;]\\xffé.pm'


@pytest.fixture
def t(tmp_path: Path) -> TraceBuilder:
    return TraceBuilder(tmp_path / "trace.cct")


def place_of(event: int) -> tuple[str, str]:
    return f"program.c:{event}", "work"


def two_ordered_stores(t: TraceBuilder, file: str = "f.pm") -> nx.DiGraph[int]:
    t.begin(7)
    t.store(file, 0, 8, 1)
    t.clwb(file, 0)
    t.sfence()
    t.store(file, 64, 4, 2)
    return annotated(build(t.trace(), "px86"), [0, 1], place_of)


def read_back(text: str) -> nx.DiGraph[int]:
    return nx.read_graphml(io.BytesIO(text.encode()), node_type=int)


def test_graphml_holds_places_and_the_rule_of_each_order(t: TraceBuilder) -> None:
    network = two_ordered_stores(t)
    again = read_back(rendered(network, Path("out.graphml")))
    first, second = (network.nodes[id_]["event"] for id_ in (0, 1))
    assert dict(again.nodes(data=True)) == {
        0: {
            "file": "f.pm",
            "kind": "data",
            "offset": 0,
            "size": 8,
            "event": first,
            "thread": 1,
            "operation": 7,
            "site": f"program.c:{first}",
            "function": "work",
        },
        1: {
            "file": "f.pm",
            "kind": "data",
            "offset": 64,
            "size": 4,
            "event": second,
            "thread": 1,
            "operation": 7,
            "site": f"program.c:{second}",
            "function": "work",
        },
    }
    assert list(again.edges(data=True)) == [(0, 1, {"rule": "flush and fence"})]


def test_only_the_pieces_asked_for_are_written(t: TraceBuilder) -> None:
    t.store("f.pm", 0, 8, 1)
    t.store("f.pm", 64, 8, 2)
    t.store("f.pm", 128, 8, 3)
    network = annotated(build(t.trace(), "px86"), [0, 2], place_of)
    assert sorted(network) == [0, 2]
    assert not network.edges


def test_a_hostile_name_survives_graphml(t: TraceBuilder) -> None:
    again = read_back(rendered(two_ordered_stores(t, HOSTILE), Path("out.graphml")))
    assert [again.nodes[id_]["file"] for id_ in (0, 1)] == [SHOWN, SHOWN]


def test_dot_quotes_a_hostile_name(t: TraceBuilder) -> None:
    text = rendered(two_ordered_stores(t, HOSTILE), Path("out.gv"))
    quoted = 'a\\"b\\\\<&>\\\\x0a\\\\x01;]\\\\xffé.pm'
    lines = text.splitlines()
    assert lines[0] == "digraph persistence {"
    assert lines[2].startswith(f'  0 [label="{quoted}+0\\nprogram.c:')
    assert f'file="{quoted}", kind="data", offset="0", size="8"' in lines[2]
    assert lines[4:] == ['  0 -> 1 [label="flush and fence", rule="flush and fence"];', "}"]
