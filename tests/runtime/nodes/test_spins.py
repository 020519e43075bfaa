"""Threads that wait in loops without a call: the others have their turn, and each run is the same."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from crashcheck.runtime.nodes.machines import NodeCommand
from support.node_runs import Worlds, by_default, complete_runs, output

Program = Callable[[str], str]


@pytest.mark.parametrize(
    ("how", "printed"),
    [
        ("flag", b"s\n"),
        ("locks", b"abab\n"),  # who holds the lock sleeps
        ("computes", b"cs\n"),  # no wait: nobody else has a turn meanwhile
    ],
)
def test_a_loop_that_changes_nothing_is_a_wait(how: str, printed: bytes, worlds: Worlds, node_program: Program) -> None:
    runs = []
    for _ in range(3):
        world = worlds((node_program("spins"), how))
        runs.append((by_default(world), world.log()))
        assert world.uncontrolled == {}
    assert output(runs[0][0], 0) == printed
    assert runs[0][0][-1].ended == 0
    assert runs[0] == runs[1] == runs[2]


@pytest.mark.slow  # ten seconds of computing, which on a busy machine it may not get in time
def test_a_loop_that_counts_gives_way_in_the_end_and_the_run_is_marked(worlds: Worlds, node_program: Program) -> None:
    world = worlds((node_program("spins"), "counts"))
    results = by_default(world)
    assert (output(results, 0), results[-1].ended) == (b"s\n", 0)
    assert world.uncontrolled == {0: ["a thread that computes while another one waits"]}


def test_a_thread_that_waits_in_a_loop_is_no_choice(worlds: Worlds, node_program: Program) -> None:
    command = NodeCommand((node_program("spins"), "flag"), explores=True)
    assert {output(results, 0) for results in complete_runs(lambda: worlds(command), 1)} == {b"s\n"}
