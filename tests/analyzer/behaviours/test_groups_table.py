"""`crashcheck groups`: a row a group in ranked order, why it stands there, and its sites."""

from __future__ import annotations

from pathlib import Path

from crashcheck.checker.strategies import Ranked
from crashcheck.cli.groups import table
from crashcheck.source import SourceTree
from support.scripts import Script
from support.wanted import A, B, X, Y, space_of


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
