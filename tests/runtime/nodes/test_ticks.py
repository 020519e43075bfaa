"""Timers that only tick: they pass in stretches, end where they have no effect, and differ from those that have one."""

from __future__ import annotations

import sys

from crashcheck.checker.nodes.paths import Branch, SleepPath
from crashcheck.checker.nodes.runs import Ending, NodeRole, NodeRun, RunRules, execute
from crashcheck.runtime.nodes.actions import ActionKind
from crashcheck.runtime.nodes.world import NodeWorld
from support.node_runs import Worlds, by_default, output

HOUR_NS = 3600 * 10**9


def python(code: str) -> tuple[str, ...]:
    return (sys.executable, "-S", "-c", f"import os, sys, time, threading\n{code}")


def run_of(world: NodeWorld, actions: int = 5, **failures: int) -> NodeRun:
    return execute(world, SleepPath(Branch()), RunRules([NodeRole("n0", ends=True)], actions, failures))


def test_an_hourly_timer_without_effect_ends_a_run_before_its_bound_and_is_no_deadlock(worlds: Worlds) -> None:
    run = run_of(worlds(python("while True: time.sleep(3600)")))
    assert (run.ending, run.failure) == (Ending.IDLE, None)
    assert all(result.quiet for result in run.results)
    assert [result.fired for result in run.results] == [1, 2, 4, 8, 16, 32, 64, 128]


def test_what_a_node_does_at_its_hundredth_tick_happens_in_the_seventh_action(worlds: Worlds) -> None:
    code = "for at in range(100): time.sleep(3600)\nprint('now', flush=True)\ntime.sleep(1)"
    results = by_default(worlds(python(code)))[1:]
    assert [(result.fired, result.quiet, result.wrote) for result in results[-3:]] == [
        (32, True, b""),
        (37, False, b"now\n"),
        (1, False, b""),
    ]
    assert results[-1].ended == 0


def test_each_tick_that_writes_to_a_file_is_an_action_that_counts(worlds: Worlds) -> None:
    for write in ("os.pwrite(file, b'x', 0)", "os.write(file, b'x')", "os.rename(names[at % 2], names[at % 2 - 1])"):
        code = f"names = ['a', 'b']\nfile = os.open('a', 66)\nat = 0\nwhile True:\n time.sleep(1); {write}; at += 1"
        run = run_of(worlds(python(code)))
        assert (run.ending, len(run.results)) == (Ending.BOUND, 5)


def test_a_timer_far_behind_many_ticks_fires(worlds: Worlds) -> None:
    code = "threading.Thread(target=lambda: [time.sleep(0.1) for _ in iter(int, 1)], daemon=True).start()\n"
    results = by_default(worlds(python(code + "time.sleep(100); print('due', flush=True); os._exit(0)")))
    assert output(results, 0) == b"due\n"
    assert len(results) < 15


def test_a_message_begins_the_stretches_of_a_node_again(worlds: Worlds) -> None:
    listens = "import socket, select\ns = socket.socket(2, 2); s.bind(('10.0.0.1', 5000))\n"
    waits = "while True:\n if select.select([s], [], [], 1)[0]: s.recv(10)"
    sends = "import socket; time.sleep(5); socket.socket(2, 2).sendto(b'x', ('10.0.0.1', 5000))"
    world = worlds(python(listens + waits), python(sends))
    for _ in range(2):
        world.take(world.enabled()[0])
    fired = [world.take(next(one for one in world.enabled() if one.node == 0)).fired for _ in range(3)]
    world.take(next(one for one in world.enabled() if one.node == 1))  # it sends
    world.take(next(one for one in world.enabled() if one.kind is ActionKind.DELIVER))
    fired.append(world.take(next(one for one in world.enabled() if one.kind is ActionKind.TIMER)).fired)
    assert fired == [1, 2, 4, 1]


def test_with_an_error_of_clocks_all_nodes_tick_until_the_last_of_them_does_something(worlds: Worlds) -> None:
    ticks = python("while True: time.sleep(1)")
    results = by_default(worlds(ticks, python("time.sleep(100); print('due', flush=True)"), clock_error_ns=0))
    assert output(results, 1) == b"due\n"
    assert len(results) < 300
