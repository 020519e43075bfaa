"""The clocks of all nodes: which timers may fire, and when time may pass before a node's next step.

Time passes by timers, and by lapses (MODIST 3.4): a node's step has compared a time, as in `if (now > t + timeout)`,
and had its clock been later the outcome would have been another one. In the run where it is later, the clock moves
before the step, so that all that the node reads from then on agrees.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from crashcheck.runtime.nodes.actions import Action, ActionKind, Compared
from crashcheck.runtime.nodes.machines import Machine
from crashcheck.runtime.nodes.timers import NEVER_NS, NodeTimers, Timer

_LOOKED_AGAIN = 2  # lapses for one comparison before one step: the second corrects the first by less than a unit


class ClockBefore(NamedTuple):
    """A node's clock before a step. `latest_ns`: up to where it could have passed; `lapsed`: why it has since the last
    step, by names of comparisons."""

    step: int
    now_ns: int
    latest_ns: int
    lapsed: tuple[int, ...]


class NodeClocks:
    """`error_ns`: how far the clocks of nodes may differ; None: each node has a clock of its own."""

    def __init__(self, nodes: Sequence[Machine], error_ns: int | None) -> None:
        self._nodes = nodes
        self._error_ns = error_ns

    def may_fire(self) -> Iterator[tuple[int, Timer]]:
        """Of each node that is not idle the timers that are due first; of these, all that the clocks' error permits."""
        latest_ns = self._latest_first_ns()
        return ((index, timer) for index, timer in self._first() if timer.due_ns <= latest_ns)

    def early(self) -> Iterator[tuple[int, Timer]]:
        """Those that it does not permit."""
        latest_ns = self._latest_first_ns()
        return ((index, timer) for index, timer in self._first() if timer.due_ns > latest_ns)

    def _first(self) -> Iterator[tuple[int, Timer]]:
        for index, node in enumerate(self._nodes):
            for timer in () if self._is_idle(node.timers) else node.timers.first():
                yield index, timer

    def _latest_first_ns(self) -> int:
        return NEVER_NS if self._error_ns is None else self._earliest_ns() + self._error_ns

    def _is_idle(self, timers: NodeTimers) -> bool:
        """Whether a node has ticked for long without effect; with an error of the clocks, whether all
        have: the time of one passes only with that of the others."""
        if self._error_ns is None:
            return timers.quiet_in_row >= timers.ticks_most
        all_timers = [node.timers for node in self._nodes]
        return sum(each.quiet_in_row for each in all_timers) >= max(each.ticks_most for each in all_timers)

    def acted(self, node: int) -> None:
        """Take note that something happened to a node, other than a quiet tick."""
        for index, each in enumerate(self._nodes):
            if index == node or self._error_ns is not None:
                each.timers.quiet_in_row = 0

    @property
    def idle(self) -> bool:
        """Whether there are timers that could fire, had their nodes not ticked without effect for so long."""
        return any(node.timers.due_ns() != NEVER_NS and self._is_idle(node.timers) for node in self._nodes)

    def _earliest_ns(self) -> int:
        return min((node.timers.due_ns() for node in self._nodes), default=NEVER_NS)

    def move(self, node: int, now_ns: int) -> None:
        """Let a node's clock pass; with an error, none may be further behind."""
        for index, each in enumerate(self._nodes):
            if index == node:
                each.timers.advance(now_ns)
            elif self._error_ns is not None:
                each.timers.advance(now_ns - self._error_ns)

    def _latest_ns(self, node: int) -> int:
        """Up to where a node's clock may pass while no timer fires. What its own timers do comes in their order; with
        clocks of their own, nobody sees when those fire that only tick."""
        timers = self._nodes[node].timers
        if self._error_ns is None:
            return timers.due_ns(ticks=False)
        return min(timers.due_ns(), self._earliest_ns() + self._error_ns)

    def before(self) -> tuple[ClockBefore, ...]:
        """What `lapses` has to know of each node from before a step."""
        return tuple(
            ClockBefore(node.steps, node.timers.now_ns, self._latest_ns(index), tuple(node.lapsed))
            for index, node in enumerate(self._nodes)
        )

    def lapses(
        self, before: Sequence[ClockBefore], compared: Mapping[tuple[int, Compared], Iterable[int]]
    ) -> tuple[Action, ...]:
        """The lapses that were possible before a step. `compared`: when which comparisons have another outcome."""
        found: dict[tuple[int, int], Action] = {}  # by node and time: what has one time has one effect
        for (node, comparison), dues in compared.items():
            clock = before[node]
            times = clock.lapsed.count(comparison.name)
            if times and (times == _LOOKED_AGAIN or clock.lapsed[-1] != comparison.name):
                continue
            for due_ns in dues:
                if clock.now_ns < due_ns <= clock.latest_ns and due_ns < NEVER_NS:
                    lapse = Action(ActionKind.LAPSE, node, -1, clock.step, comparison.name, due_ns)
                    found.setdefault((node, due_ns), lapse)
        return tuple(sorted(found.values(), key=lambda lapse: (lapse.node, lapse.due_ns)))

    def permits(self, action: Action) -> bool:
        """Whether a lapse is possible now."""
        if action.kind is not ActionKind.LAPSE or not 0 <= action.node < len(self._nodes):
            return False
        node = self._nodes[action.node]
        in_time = node.timers.now_ns < action.due_ns <= self._latest_ns(action.node)
        return in_time and action.number == node.steps and node.starts > 0

    def lapse(self, action: Action) -> None:
        self._nodes[action.node].lapsed.append(action.channel)
        self.acted(action.node)
        self.move(action.node, action.due_ns)
