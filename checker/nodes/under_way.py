"""The runs that are being made, so that the end of a budget ends those that do not come to an end by themselves."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event

from crashcheck.checker.budget import OutOfTime
from crashcheck.checker.nodes.paths import SleepPath
from crashcheck.checker.nodes.runs import NodeRun, RunRules, execute
from crashcheck.runtime.nodes.actions import Action, NodeError, World

Restless = tuple[Action, float]  # in which a run was ended, for so many seconds until then

_RESTLESS_S = 1.0  # an action takes milliseconds, and the start of a Java program less than a second


class RunsUnderWay:
    """`execute` may be called by several threads at once, and `end` by any."""

    def __init__(self) -> None:
        self._worlds: list[World] = []
        self._over = Event()
        self.restless: list[Restless] = []

    def execute(
        self, make: Callable[[], World], path: SleepPath, rules: RunRules, *, until_failure: bool = False
    ) -> NodeRun:
        """As `runs.execute`, in a new world. Raises OutOfTime if the run was ended, Diverged, NodeError."""
        if self._over.is_set():
            raise OutOfTime  # a world whose nodes begin with large folders takes seconds to make
        world = make()
        self._worlds.append(world)  # before `_over` is read: `end` stops it, or it is stopped here
        if self._over.is_set():
            world.stop()
        try:
            return execute(world, path, rules, until_failure=until_failure)
        except NodeError as error:
            if self._over.is_set():
                if error.action is not None and error.seconds >= _RESTLESS_S:
                    self.restless.append((error.action, error.seconds))
                raise OutOfTime from error
            raise
        finally:
            self._worlds.remove(world)

    def end(self) -> None:
        """End all of them, and those that begin later."""
        self._over.set()
        for world in [*self._worlds]:
            world.stop()

    def close(self) -> None:
        """Nothing is left to be ended."""
