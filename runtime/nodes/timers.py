"""The timers of a node: which are due first, and which only tick."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

NEVER_NS = (1 << 64) - 1  # the end of time

# So many quiet ticks in a row, and a node is idle: nothing else is expected of its timers. More where one of them has
# not ticked before, and is due later: Go's monitor thread ticks every 10 ms, and 2.7 minutes of it take 2 s.
_TICKS_MOST = (1 << 8) - 1
_TICKS_MOST_BEFORE_OTHERS = (1 << 14) - 1


class Timer(NamedTuple):
    """An armed timer. `owner` and `lasts_ns` name what arms it again and again: a thread's wait, or a file."""

    number: int
    due_ns: int
    owner: int
    lasts_ns: int


@dataclass(slots=True)
class NodeTimers:
    """The armed timers of a node, and its clock.

    A timer ticks if it was quiet when it fired, as Go's monitor thread or a server's cron is: nothing was sent, written
    or connected, and no process ended. The next of the same owner that lasts as long is taken for a tick as well.
    `quiet_in_row`: timers that were quiet since anything else happened to the node.
    """

    now_ns: int = 0
    quiet_in_row: int = 0
    _armed: dict[int, Timer] = field(default_factory=dict)
    _ticking: set[tuple[int, int]] = field(default_factory=set)

    def arm(self, number: int, due_ns: int, owner: int) -> None:
        self._armed[number] = Timer(number, due_ns, owner, due_ns - self.now_ns)

    def disarm(self, number: int) -> None:
        self._armed.pop(number, None)

    def first(self) -> list[Timer]:
        """Those that are due first, in the order in which they were armed."""
        due_ns = min((timer.due_ns for timer in self._armed.values()), default=0)
        return [timer for timer in self._armed.values() if timer.due_ns == due_ns]

    def due_ns(self, *, ticks: bool = True) -> int:
        """When the first is due, at the end of time if there is none. `ticks`: whether those count that only tick."""
        dues = (timer.due_ns for timer in self._armed.values() if ticks or not self.ticks(timer))
        return min(dues, default=NEVER_NS)

    def ticks(self, timer: Timer) -> bool:
        """Whether it was quiet when it fired last."""
        return (timer.owner, timer.lasts_ns) in self._ticking

    @property
    def ticks_most(self) -> int:
        """How many quiet ticks in a row are of use."""
        return _TICKS_MOST if self.due_ns(ticks=False) == NEVER_NS else _TICKS_MOST_BEFORE_OTHERS

    @property
    def stretch(self) -> int:
        """How many timers one action lets fire while they are quiet: twice as many as the one before.

        So a node comes to each time before a message, roughly, and soon to what its thousandth tick leads to.
        """
        return self.quiet_in_row + 1

    def advance(self, due_ns: int) -> None:
        self.now_ns = max(self.now_ns, due_ns)

    def fired(self, timer: Timer, quiet: bool) -> None:
        """Take note of what a timer led to."""
        if quiet:
            self.quiet_in_row += 1
            self._ticking.add((timer.owner, timer.lasts_ns))
        else:
            self._ticking.discard((timer.owner, timer.lasts_ns))
