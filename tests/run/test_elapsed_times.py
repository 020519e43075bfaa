"""Generated programs that compare times: what a search reaches, a clock can show, and the least times are reached."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from crashcheck.analyzer.compile.driver import wrapper
from crashcheck.checker.nodes.paths import SleepPath
from crashcheck.checker.nodes.runs import Ending, NodeRole, RunRules, execute, execution_of
from crashcheck.checker.nodes.strategies import NodePlan, NodeStrategy, frontier_of
from crashcheck.runtime.nodes.machines import NodeCommand
from crashcheck.runtime.nodes.world import NodeWorld

SOURCE = Path(__file__).parent / "nodes" / "elapse.c"
WAYS = "mlust"
LONGEST_MS = 3500  # after which no comparison changes
Step = tuple[str | tuple[str, str, int], ...]  # a register that is set, or one that is compared: the way, and by what


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    target = tmp_path_factory.mktemp("elapse") / "elapse"
    assert wrapper.run(["-O1", "-g", "-Wall", "-Wextra", "-Werror", str(SOURCE), "-o", str(target)], cxx=False) == 0
    return str(target)


def generated(seed: int) -> list[Step]:
    """Steps after the first, which sets all registers."""
    random = Random(seed)

    def part() -> str | tuple[str, str, int]:
        register, way = random.choice("ab"), random.choice(WAYS)
        length = 1000 * random.randint(0, 1) if way == "s" else random.randint(1, 3)
        return register if random.random() < 0.25 else (register, way, length)

    return [("a", "b"), *(tuple(part() for _ in range(random.randint(1, 2))) for _ in range(random.randint(1, 3)))]


def text_of(steps: list[Step]) -> str:
    """The script of the C program."""
    return ",".join(
        "".join(f"s{one}" if isinstance(one, str) else f"c{one[0]}{one[1]}{one[2]}" for one in step) for step in steps
    )


def outcome(way: str, passed_ms: int, since_ms: int, now_ms: int, length_ms: int) -> bool:
    if way == "m":
        return passed_ms > length_ms
    if way == "s":  # of whole seconds
        return now_ms // 1000 - since_ms // 1000 > length_ms // 1000
    return passed_ms >= length_ms


def made(step: Step, registers: dict[str, int], now_ms: int) -> tuple[str, dict[str, int]]:
    """What a step prints at a time, and the registers after it."""
    registers, printed = dict(registers), ""
    for one in step:
        if isinstance(one, str):
            registers[one] = now_ms
        else:
            since = registers[one[0]]
            printed += str(int(outcome(one[1], now_ms - since, since, now_ms, one[2])))
    return printed + ".", registers


Times = Callable[[Step, dict[str, int], int], Iterator[int]]


def all_printed(steps: list[Step], times: Times, registers: dict[str, int], now_ms: int = 0) -> set[str]:
    """All that may be printed if each step is made at one of some times, given what is known before it."""
    if not steps:
        return {""}
    found = set()
    for time_ms in times(steps[0], registers, now_ms):
        printed, after = made(steps[0], registers, time_ms)
        found |= {printed + rest for rest in all_printed(steps[1:], times, after, time_ms)}
    return found


def earliest(step: Step, registers: dict[str, int], now_ms: int) -> Iterator[int]:
    """Now, and each time from which on the step prints something else."""
    before = None
    for time_ms in range(now_ms, now_ms + LONGEST_MS):
        printed, _ = made(step, registers, time_ms)
        if printed != before:
            yield time_ms
        before = printed


def every_time(step: Step, registers: dict[str, int], now_ms: int) -> Iterator[int]:
    """All times that can make a difference: some ms after each second, within which differences are exact."""
    return (second + ms for second in range(0, 4000, 1000) for ms in range(12) if second + ms >= now_ms)


def reached(world: Callable[[], NodeWorld], strategy: NodeStrategy) -> set[str]:
    frontier = frontier_of(NodePlan(strategy))
    rules = RunRules([NodeRole("receiver"), NodeRole("sender")], 50)
    printed = set()
    while branches := frontier.round():
        for branch in branches:
            run = execute(world(), SleepPath(branch), rules)
            frontier.ended(branch, execution_of(run))
            if run.ending is not Ending.ASLEEP:
                assert run.ending is Ending.COMPLETE
                results = (*run.set_up, *run.results)
                printed.add("".join(each.wrote.decode() for each in results if each.action.node == 0))
    return printed


def compare(program: str, seed: int, folder: Path, strategies: tuple[NodeStrategy, ...]) -> None:
    steps, numbers = generated(seed), itertools.count()

    def world() -> NodeWorld:
        commands = [NodeCommand((program, str(node), "10.0.0.1", text_of(steps))) for node in range(2)]
        return NodeWorld(commands, folder / f"world{next(numbers)}")

    least, most = all_printed(steps, earliest, {}), all_printed(steps, every_time, {})
    for strategy in strategies:
        found = reached(world, strategy)
        assert least <= found <= most, (text_of(steps), sorted(least - found), sorted(found - most))


@pytest.mark.parametrize("seed", range(3))
def test_dpor_reaches_what_a_clock_can_show(program: str, tmp_path: Path, seed: int) -> None:
    compare(program, seed, tmp_path, ("dpor",))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3, 60))
def test_dpor_and_dfs_reach_what_a_clock_can_show(program: str, tmp_path: Path, seed: int) -> None:
    compare(program, seed, tmp_path, ("dpor", "dfs"))
