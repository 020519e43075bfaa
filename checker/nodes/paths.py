"""How a run picks its actions: at random or by default, without what sleeps, or as another run did."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from crashcheck.checker.nodes.dependence import BOUND_OF, Footprint
from crashcheck.checker.search.schedules import Path, first
from crashcheck.runtime.nodes.actions import Action, ActionKind


class Branch(NamedTuple):
    """A run to be made: actions to begin with, what is asleep before the last of them, and how the rest is picked."""

    prefix: tuple[Action, ...] = ()
    asleep: tuple[tuple[Action, Footprint], ...] = ()
    seed: str = ""  # empty: the first that may come
    followed: tuple[
        Action, ...
    ] = ()  # instead of all that: the choices of a run of another version, as SteeredPath has


class SleepPath(Path[Action]):
    """A path that comes to what is asleep in no free choice."""

    def __init__(self, branch: Branch) -> None:
        self._forced = len(branch.prefix)
        self._asleep = dict(branch.asleep)
        self.sleeps: list[dict[Action, Footprint]] = []  # in each state from the end of the prefix on
        self._choose = Random(branch.seed).choice if branch.seed else first
        super().__init__(branch.prefix, self._pick)

    def _pick(self, enabled: Sequence[Action]) -> Action:
        awake = [action for action in enabled if action not in self._asleep]
        chosen = self._choose(list(dict.fromkeys(map(_without_disk, awake))))
        same = [action for action in awake if _without_disk(action) == chosen]
        return same[0] if len(same) == 1 else self._choose(same)

    def comes_to(self, enabled: Sequence[Action]) -> bool:
        """Take note of a state; whether the path continues."""
        if len(self.chosen) < self._forced:
            return True
        self.sleeps.append(self._asleep)
        return any(action not in self._asleep for action in enabled)

    def took(self, shown: Footprint) -> None:
        """What depends on the action that was taken wakes up."""
        if len(self.chosen) >= self._forced:
            self._asleep = {action: one for action, one in self._asleep.items() if not one.depends_on(shown)}


class ExactPath(SleepPath):
    """A path that takes given actions, and no others."""

    def __init__(self, actions: Sequence[Action]) -> None:
        super().__init__(Branch(tuple(actions)))

    def comes_to(self, enabled: Sequence[Action]) -> bool:
        return len(self.chosen) < self._forced


class GuidedPath(SleepPath):
    """A path that takes actions in a given order, each as soon as it may come; then what comes by default.

    It takes no failure that is not among them.
    """

    def __init__(self, wanted: Sequence[Action]) -> None:
        super().__init__(Branch())
        self._wanted = list(wanted)

    def _pick(self, enabled: Sequence[Action]) -> Action:
        for action in self._wanted:
            if action in enabled:
                self._wanted.remove(action)
                return action
        return next(action for action in enabled if action.kind not in BOUND_OF)

    def comes_to(self, enabled: Sequence[Action]) -> bool:
        return any(action in self._wanted or action.kind not in BOUND_OF for action in enabled)


class SteeredPath(GuidedPath):
    """A path that follows a run of other programs as far as it can: timers may be due at other times.

    It ends with the last action of that run. `to_end`: what may follow that is taken by default, without failures.
    """

    def __init__(self, wanted: Sequence[Action], *, to_end: bool = False) -> None:
        super().__init__([_timeless(action) for action in wanted])
        self._to_end = to_end
        self._departed: tuple[int, Action] | None = None

    def _pick(self, enabled: Sequence[Action]) -> Action:
        possible = {_timeless(action): action for action in reversed(enabled)}
        place = next((at for at, action in enumerate(self._wanted) if action in possible), None)
        if place != 0 and self._wanted and self._departed is None:
            self._departed = len(self.chosen), self._wanted[0]
        if place is None:
            return super()._pick(enabled)
        return possible[self._wanted.pop(place)]

    def comes_to(self, enabled: Sequence[Action]) -> bool:
        return (self._to_end or bool(self._wanted)) and super().comes_to(list(map(_timeless, enabled)))

    @property
    def left(self) -> int:
        """How many actions of that run have not come."""
        return len(self._wanted)

    @property
    def departed(self) -> tuple[int, Action] | None:
        """After how many choices what came was not the next action of that run, and that action; None: it all came."""
        return self._departed or ((len(self.chosen), self._wanted[0]) if self._wanted else None)


def path_of(branch: Branch) -> SleepPath:
    """The path of a run to be made."""
    return SteeredPath(branch.followed, to_end=True) if branch.followed else SleepPath(branch)


def _timeless(action: Action) -> Action:
    return action._replace(due_ns=0)


def _without_disk(action: Action) -> Action:
    """A machine restarts as often as other things happen, however many states its disk may be in."""
    return action._replace(channel=0) if action.kind is ActionKind.RESTART else action
