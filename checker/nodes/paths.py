"""How a run picks its actions: at random or by default, without what sleeps, or as another run did."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

from crashcheck.checker.nodes.dependence import BOUND_OF, CRASHES, Footprint
from crashcheck.checker.search.schedules import Path, first
from crashcheck.runtime.nodes.actions import ALL_WRITTEN, Action, ActionKind


class Branch(NamedTuple):
    """A run to be made: actions to begin with, what is asleep before the last of them, and how the rest is picked."""

    prefix: tuple[Action, ...] = ()
    asleep: tuple[tuple[Action, Footprint], ...] = ()
    seed: str = ""  # empty: the first that may come
    passing: bool = False  # a timer without effect that ends the prefix is followed by its node's next, until one has
    # Instead of all that: the choices of a run of another version, as SteeredPath has.
    followed: tuple[Action, ...] = ()


_SPANS = (0, 3, 6, 12)  # doublings between the most and the least frequent source of a run; a run draws one
_FAILURE_DOUBLINGS = (1, 9)  # a failure of a bound is chosen once in 2 to 512 choices: runs have about as many actions
_REDRAW_EVERY = 32  # choices, on average, until a source gets another weight
_STRETCHES = (1, 3, 8)  # timers of a node in a row, on average, while they have no effect; a run draws one

_Source = tuple[str | int, ...]  # of failures: the name of their bound alone


class UnevenChoice:
    """Chooses at random, from some sources far more often than from others, and timers of one node in a row.

    A source is a link, a thread, the timers of a node, the failures of one bound. A message that is one of five
    possible actions each time is delivered soon. That a node times out meanwhile, after thirty ticks of its own, would
    happen in one of a million runs. So each source has a weight for a while, down to 1 in 4,096 of the highest, and
    where a timer is chosen, the time of its node passes until it sends something or writes a file, or for so many
    timers. That matters where a message to it is under way, so it is chosen there more often. Some runs have equal
    weights, and some no such stretches. (Burckhardt et al. 2010 order threads by random priorities that change a few
    times, for the same reason.)
    """

    def __init__(self, seed: str, *, one_clock: bool = False) -> None:
        """`one_clock`: all nodes have one, up to an error: no node's time passes alone."""
        # constant
        self._random = Random(seed)
        self._one_clock = one_clock
        self._span = self._random.choice(_SPANS)
        self._stretch = self._random.choice(_STRETCHES)
        # Long stretches are rare: else nothing but timers happens.
        self._timers = 1.0 if self._stretch == 1 else 2 ** -self._random.uniform(1, 6)
        # changing
        self._weights: dict[_Source, float] = {}
        self._passes: tuple[int, frozenset[Action]] | None = None  # the node whose time passes, and what else may come

    def __call__(self, enabled: Sequence[Action]) -> Action:
        action = self._next_timer(enabled) or self._drawn(enabled)
        self._passes = (action.node, _but_timers(enabled)) if action.kind is ActionKind.TIMER else None
        return action

    def _next_timer(self, enabled: Sequence[Action]) -> Action | None:
        """The next one of a stretch."""
        if self._passes is None or self._random.random() * self._stretch < 1:
            return None
        node, others = self._passes
        timers = (action for action in enabled if action.kind is ActionKind.TIMER)
        timer = next((action for action in timers if self._one_clock or action.node == node), None)
        return timer if _but_timers(enabled) == others else None

    def _drawn(self, enabled: Sequence[Action]) -> Action:
        actions: dict[_Source, list[Action]] = {}
        for action in enabled:
            actions.setdefault(_source(action), []).append(action)
        for source in actions:
            if source not in self._weights or self._random.random() * _REDRAW_EVERY * len(actions) < 1:
                low, high = (0, self._span) if len(source) > 1 else _FAILURE_DOUBLINGS
                self._weights[source] = 2 ** -self._random.uniform(low, high)
        awaited = {action.node for action in enabled if action.kind is ActionKind.DELIVER}
        shares = [self._weights[source] * self._share(source, awaited) for source in actions]
        usual = sum(share for source, share in zip(actions, shares, strict=True) if len(source) > 1) or 1.0
        weights = [share * (1 if len(source) > 1 else usual) for source, share in zip(actions, shares, strict=True)]
        return self._random.choice(actions[self._random.choices(list(actions), weights)[0]])

    def _share(self, source: _Source, awaited: set[int]) -> float:
        """How often a source is chosen beside its weight. `awaited`: nodes that a message is under way to."""
        if source[0] != ActionKind.TIMER.value or self._stretch == 1:
            return 1.0
        return self._timers if source[1] in awaited else self._timers / _STRETCHES[1]


_EVENTS = (4, 16, 64)  # of a phase, on average; a run draws one
_TICKS_OF_AN_EVENT = 8  # timers without effect that count as one: phases of Java's nodes are 2 to 30 s of their time
_HELD = (0.1, 0.3, 0.6)  # how many links are held in a phase; a run draws one
_ALONE = (0.0, 0.5, 0.9)  # how often the time of one node alone passes; a run draws one
_STAYS = (0.0, 0.5)  # how often the next phase keeps the links that are held, or the nodes whose time passes
_HEALED = 0.25  # of the phases hold no link

_Link = tuple[int, int]  # sender and receiver


class PhasedChoice:
    """Chooses in phases: some links are held, and the time of some nodes passes, until the next phase.

    What is not held arrives at once, in any order; else the timers of these nodes fire, as they are due. So one phase
    is a node that times out while what others sent to it is on the way, or a majority that continues without the rest;
    a few in a row are what deep bugs need. (FoundationDB's simulation clogs links and nodes for a while, for the same
    reason.) The links of one node are held, from it, to it or both, or some of all links; each run draws how long, how
    many and how often, as swarm testing does (Groce et al. 2012).

    After the crash of a machine, the first phase is one that breaks a promise: what it had sent to one node arrives,
    and it starts again. That node and all others hear nothing of each other, nor of what was under way. So the one
    relies on what the others decide otherwise meanwhile, with the machine that knows of nothing.
    """

    def __init__(self, seed: str, *, one_clock: bool = False, crashed: int = -1) -> None:
        """`one_clock`: as UnevenChoice has it. `crashed`: the node whose machine has just crashed; -1: none has."""
        # constant
        self._random = Random(seed)
        self._one_clock = one_clock
        self._events = self._random.choice(_EVENTS)
        self._share = self._random.choice(_HELD)
        self._alone = self._random.choice(_ALONE)
        self._stays = self._random.choice(_STAYS)
        # changing
        self._crashed = crashed
        self._failures: dict[str, float] = {}  # how often one is chosen, by the name of its bound
        self._left = 0.0  # events of this phase
        self._others: frozenset[Action] | None = None  # what else could come when a timer was chosen
        self._held_of: tuple[int, bool, bool] | None = None  # the node whose links are held, from it and to it
        self._some_held = False
        self._held: dict[_Link, bool] = {}  # where links are drawn one by one
        self._passing: int | None = None  # the node whose time passes alone
        self._passes: dict[int, bool] = {}
        self._waits: dict[Action, bool] = {}  # what does not come in this phase: where that is drawn one by one

    def __call__(self, enabled: Sequence[Action]) -> Action:
        if self._others != _but_timers(enabled):
            self._left -= 1
        elif self._one_clock:  # in which the timers of all nodes may tick for hours
            self._left -= 1 / _TICKS_OF_AN_EVENT
        if self._left <= 0:
            self._next_phase(enabled)
        action = self._failure(enabled) or self._usual(enabled)
        self._others = _but_timers(enabled) if action.kind is ActionKind.TIMER else None
        return action

    def _next_phase(self, enabled: Sequence[Action]) -> None:
        random = self._random
        self._left = 1 + random.expovariate(1 / self._events)
        self._waits.clear()
        promises = [action for action in enabled if action.kind is ActionKind.DELIVER and action.peer == self._crashed]
        self._crashed = -1
        if promises:
            self._break(random.choice(promises), enabled)
        elif random.random() >= self._stays:
            nodes = sorted({node for action in enabled for node in (action.node, action.peer) if node >= 0})
            self._held.clear()
            healed = random.random() < _HEALED
            self._some_held = not healed and random.random() < 1 / 3
            which = random.choice(((True, True), (True, False), (False, True)))
            self._held_of = None if healed or self._some_held else (random.choice(nodes), *which)
        if random.random() >= self._stays:
            timed = sorted({action.node for action in enabled if action.kind is ActionKind.TIMER})
            self._passes.clear()
            self._passing = random.choice(timed) if timed and random.random() < self._alone else None

    def _break(self, promise: Action, enabled: Sequence[Action]) -> None:
        """Hold what may break a promise, whose delivery that is."""
        self._held_of = (promise.node, True, True)
        for action in enabled:
            if action.kind is ActionKind.DELIVER:
                self._waits[action] = (action.node, action.peer) != (promise.node, promise.peer)
            elif action.kind is ActionKind.RESTART:
                self._waits[action] = False

    def _failure(self, enabled: Sequence[Action]) -> Action | None:
        for bound in sorted({BOUND_OF[action.kind] for action in enabled if action.kind in BOUND_OF}):
            often = self._failures.setdefault(bound, 2 ** -self._random.uniform(*_FAILURE_DOUBLINGS))
            if self._random.random() < often:
                return self._random.choice([action for action in enabled if BOUND_OF.get(action.kind) == bound])
        return None

    def _usual(self, enabled: Sequence[Action]) -> Action:
        timers = [action for action in enabled if action.kind is ActionKind.TIMER]
        usual = [action for action in enabled if action.kind not in BOUND_OF and action.kind is not ActionKind.TIMER]
        arriving = [action for action in usual if not self._is_held(action)]
        if arriving:
            return self._random.choice(arriving)
        due = next((timer for timer in timers if self._time_passes(timer.node)), None)
        return due or self._random.choice([*usual, *timers] or list(enabled))

    def _is_held(self, action: Action) -> bool:
        if action in self._waits:
            return self._waits[action]
        if action.kind in (ActionKind.HEAL, ActionKind.RESTART):
            return self._waits.setdefault(action, self._random.random() < 1 / 2)
        if action.peer < 0:
            return False
        if self._held_of is not None:
            node, sent, received = self._held_of
            return (sent and action.peer == node) or (received and action.node == node)
        link = (action.peer, action.node)
        return self._some_held and self._held.setdefault(link, self._random.random() < self._share)

    def _time_passes(self, node: int) -> bool:
        if self._one_clock:
            return True
        if self._passing is not None:
            return node == self._passing
        return self._passes.setdefault(node, self._random.random() < 1 / 2)


def _but_timers(enabled: Sequence[Action]) -> frozenset[Action]:
    return frozenset(action for action in enabled if action.kind is not ActionKind.TIMER)


def _source(action: Action) -> _Source:
    if action.kind in BOUND_OF:
        return (BOUND_OF[action.kind],)
    if action.kind is ActionKind.DELIVER:
        return ("link", action.peer, action.node)
    if action.kind is ActionKind.THREAD:
        return (action.kind.value, action.node, action.number)
    return (action.kind.value, action.node)


def _at_random(seed: str, one_clock: bool, crashed: int) -> Callable[[Sequence[Action]], Action]:
    """One of the ways to choose at random: each finds what the other one does not."""
    if crashed >= 0:
        return PhasedChoice(seed, one_clock=one_clock, crashed=crashed)
    return Random(f"{seed}/way").choice((UnevenChoice, PhasedChoice))(seed, one_clock=one_clock)


class SleepPath(Path[Action]):
    """A path that comes to what is asleep in no free choice."""

    def __init__(self, branch: Branch) -> None:
        self._forced = len(branch.prefix)
        self._asleep = dict(branch.asleep)
        self.sleeps: list[dict[Action, Footprint]] = []  # in each state from the end of the prefix on
        self._seed = branch.seed
        self._choose: Callable[[Sequence[Action]], Action] = first
        last = branch.prefix[-1] if branch.prefix else None
        # The node whose machine has just crashed, until it starts again; -1: none has.
        self._crashed = last.node if last is not None and last.kind in CRASHES else -1
        self._passing = branch.passing
        self._passes = -1  # the node whose timers fire
        super().__init__(branch.prefix, self._pick)

    def begin(self, *, one_clock: bool) -> None:
        """The run begins. `one_clock`: all nodes have one, up to an error."""
        if self._seed:
            self._choose = _at_random(self._seed, one_clock, self._crashed)

    def _pick(self, enabled: Sequence[Action]) -> Action:
        awake = [action for action in enabled if action not in self._asleep]
        for action in awake:
            if action.kind is ActionKind.TIMER and action.node == self._passes:
                return action
        chosen = self._choose(list(dict.fromkeys(map(_without_disk, awake))))
        same = [action for action in awake if _without_disk(action) == chosen]
        if self._seed and chosen.kind is ActionKind.RESTART and chosen.node == self._crashed:
            self._crashed = -1
            same = [action for action in same if action.channel != ALL_WRITTEN] or same  # else no promise is broken
        return same[0] if len(same) == 1 else self._choose(same)

    def comes_to(self, enabled: Sequence[Action]) -> bool:
        """Take note of a state; whether the path continues."""
        if len(self.chosen) < self._forced:
            return True
        self.sleeps.append(self._asleep)
        return any(action not in self._asleep for action in enabled)

    @property
    def lapses(self) -> Sequence[Action]:
        """What the path may take next though no state offers it."""
        at = len(self.chosen)
        return [action for action in self._prefix[at : at + 1] if action.kind is ActionKind.LAPSE]

    def took(self, shown: Footprint, *, quiet: bool = False) -> None:
        """What depends on the action that was taken wakes up. `quiet`: timers fired without effect."""
        if len(self.chosen) >= self._forced:
            self._passing &= quiet
            self._passes = self.chosen[-1].node if self._passing else -1
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

    @property
    def lapses(self) -> Sequence[Action]:
        return [action for action in self._wanted if action.kind is ActionKind.LAPSE]

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
    """Without when a timer is due. A lapse stays: where the other program's clock may not come to that, it departs."""
    return action if action.kind is ActionKind.LAPSE else action._replace(due_ns=0)


def _without_disk(action: Action) -> Action:
    """A machine restarts as often as other things happen, however many states its disk may be in."""
    return action._replace(channel=0) if action.kind is ActionKind.RESTART else action
