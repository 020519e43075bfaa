"""`crashcheck groups`: one row per group in ranked order, the reason for its rank, and its sites."""

from __future__ import annotations

from pathlib import Path

import networkx as nx
import pytest

from crashcheck.analyzer.persistence import PersistenceGraph
from crashcheck.checker.strategies import Planned, Ranked
from crashcheck.checker.subject import NoProvenance, Provenance
from crashcheck.cli import main
from crashcheck.cli.groups import table, write_graph
from crashcheck.errors import CrashcheckError
from crashcheck.source import SourceTree
from support.scripts import A, B, Script, X, Y, space_of


def test_the_table_shows_rank_score_and_reasons(tmp_path: Path) -> None:
    script = Script(tmp_path, A, B, X, Y)
    script.trace.begin(1)
    script.at(1, 0, delta=0)
    script.at(2, 64, delta=64)
    script.persist(0, 128)
    script.trace.end(1)
    script.at(3, 4096, delta=0)
    script.persist(4096)
    plan = Ranked(script.facts, changed=lambda place: place.variable == "pair.b").plan(space_of(script))
    assert list(table(plan.rank(), plan.behaviours, SourceTree(Path("/src")))) == [
        "2 update behaviours in 2 groups",
        "rank  score  type   members  updates  states  representative",
        "   1   2.50  pair         1        2       4  f+0, operation 1",
        "      1 of 2 sites changed; 2 updates",
        "      program.c:1 work pair.a",
        "      program.c:2 work pair.b",
        "   2   1.00  other        1        1       2  f+4096, operation 1",
        "      1 update",
        "      program.c:3 work other.x",
    ]


def planned(script: Script) -> tuple[PersistenceGraph, Provenance, tuple[Planned, ...]]:
    space = space_of(script)
    return space.graph, NoProvenance(), Ranked(script.facts).plan(space).rank()


def test_the_graph_of_a_group_is_that_of_its_representative(tmp_path: Path) -> None:
    script = Script(tmp_path, A, B, X, Y)
    script.at(1, 0, delta=0)
    script.persist(0)
    script.at(2, 64, delta=64)
    script.persist(64)
    graph, provenance, groups = planned(script)
    path = tmp_path / "out.graphml"
    assert write_graph(graph, provenance, groups, 1, path) == f"{path}: group 1, 2 pieces, 1 order"
    network = nx.read_graphml(path, node_type=int)
    pieces = groups[0].ranked.group.representative.pieces
    assert {id_: network.nodes[id_]["offset"] for id_ in network} == dict(zip(pieces, (0, 64), strict=True))
    assert list(network.edges(data="rule")) == [(*pieces, "flush and fence")]


def test_a_group_that_there_is_not_has_no_graph(tmp_path: Path) -> None:
    script = Script(tmp_path, A, B, X, Y)
    script.at(1, 0, delta=0)
    with pytest.raises(CrashcheckError) as caught:
        write_graph(*planned(script), 2, tmp_path / "out.dot")
    assert caught.value.slug == "bad-option"
    assert not (tmp_path / "out.dot").exists()


def test_a_graph_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    script = Script(tmp_path, A, B, X, Y)
    script.at(1, 0, delta=0)
    with pytest.raises(CrashcheckError) as caught:
        write_graph(*planned(script), 1, tmp_path / "nowhere" / "out.dot")
    assert caught.value.slug == "graph-unwritable"


@pytest.mark.parametrize(
    "options", [["--group", "2"], ["--graph", "out.png"], ["--graph", "out.dot", "--group", "0"]], ids=" ".join
)
def test_options_of_the_graph_that_make_no_sense_are_refused(
    options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["groups", *options]) == 2
    assert "[bad-option]" in capsys.readouterr().err
