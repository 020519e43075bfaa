"""What the evaluation of nodes counts: partial orders, and states by what each node has sent and printed."""

from __future__ import annotations

from pathlib import Path

from bench.papers.curves import counts_over_runs
from bench.papers.parts import partial_orders
from bench.papers.parts.partial_orders import NodeState, Reached, pictures, reached, section, setup_of, states_of

from crashcheck.checker.nodes.paths import Branch, SleepPath
from crashcheck.checker.nodes.runs import NodeRole, RunRules, execute
from support.message_programs import Does, MessageProgram, MessageWorld

ROWS = [
    Reached("s", "random", (1, 2, 2), (3, 4, 4), 0, True),
    Reached("s", "dpor", (1, 2), (3, 5), 1, True),
]


def test_a_state_is_what_each_node_has_sent_and_printed_whatever_the_order() -> None:
    """Two nodes send to a third, which prints what it receives: two orders, one state at the end less than all."""
    program = MessageProgram(
        3,
        lambda node: Does("", [(2, f"{node}")] if node < 2 else ()),
        lambda node, memory, sender, data: Does("", prints="x"),
    )
    rules = RunRules([NodeRole(f"n{node}") for node in range(3)], 9)
    paths = [SleepPath(Branch()), SleepPath(Branch(seed="6"))]
    runs = [execute(MessageWorld(program), path, rules) for path in paths]
    assert runs[0].chosen != runs[1].chosen
    first, second = ([*states_of(run, 3)] for run in runs)
    assert first == second
    senders = [NodeState("up", 0, frozenset({(2, text)})) for text in (b"0", b"1")]
    assert first[-1] == (*senders, NodeState("up", printed=b"xx"))
    assert len(set(first)) == 5


def test_the_first_runs_of_a_strategy_are_counted_one_by_one(tmp_path: Path) -> None:
    found = reached("two-phase commit", "dfs", setup_of("two-phase commit", tmp_path), 4)
    assert (len(found.orders), len(found.states), found.ended, found.cut) == (4, 4, False, 0)
    assert list(found.orders) == sorted(found.orders)
    assert (found.orders[0], found.states[0] > 5) == (1, True)


def test_the_table_names_where_no_run_was_left_and_the_picture_has_a_line_for_each_strategy() -> None:
    text = "\n".join(section(ROWS))
    assert "| s | random | 3 | 0 | 2 | 2 | 2 | 4 | 4 | 4 |" in text
    assert "| s | dpor | 2 (all) | 1 | 2 | 2 | 2 | 5 | 5 | 5 |" in text
    (picture,) = pictures(ROWS).values()
    assert picture == counts_over_runs(
        {
            "s: partial orders": {row.strategy: row.orders for row in ROWS},
            "s: protocol states": {row.strategy: row.states for row in ROWS},
        }
    )
    assert picture.count("<polyline") == 4
    assert partial_orders.PICTURE.endswith(".svg")
