"""How tests drive a world: by default, by a schedule, and in every order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from crashcheck.runtime.nodes.actions import Action, ActionKind, ActionResult
from crashcheck.runtime.nodes.world import NodeWorld

Worlds = Callable[..., NodeWorld]  # made of commands

USUAL = (ActionKind.THREAD, ActionKind.START, ActionKind.CONNECT, ActionKind.DELIVER, ActionKind.TIMER)


def usual(world: NodeWorld) -> list[Action]:
    """What may happen without a failure."""
    return [action for action in world.enabled() if action.kind in USUAL]


def by_default(world: NodeWorld, most: int = 1000) -> list[ActionResult]:
    """Take the first action until nothing but failures is left."""
    results: list[ActionResult] = []
    while (possible := usual(world)) and len(results) < most:
        results.append(world.take(possible[0]))
    return results


def output(results: Sequence[ActionResult], node: int) -> bytes:
    return b"".join(result.wrote for result in results if result.action.node == node)


def complete_runs(make: Callable[[], NodeWorld], prefix: int) -> Iterator[tuple[ActionResult, ...]]:
    """Every order of usual actions, after so many that are taken by default: by brute force."""
    paths: list[list[Action]] = [[]]
    while paths:
        path = paths.pop()
        world = make()
        results = [world.take(world.enabled()[0]) for _ in range(prefix)]
        results += [world.take(action) for action in path]
        while possible := usual(world):
            paths += [[*path, other] for other in possible[1:]]
            path = [*path, possible[0]]
            results.append(world.take(possible[0]))
        world.close()
        yield tuple(results)
