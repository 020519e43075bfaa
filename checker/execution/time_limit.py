"""How long one run of the check may take, and which runs are seen before that not to end by themselves.

Crash states that hang cost their whole limit each. But where each thread waits for a lock that only another of them
could release, waiting is useless; and a limit that a longer one confirms (checker/search/timeouts.py) may also
end runs that are busy for much longer than the check has ever been.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Set
from typing import NamedTuple

from crashcheck.runtime.supervise import own_children

_FIRST_S = 0.05  # until a run is first examined
_CPU_CLOCK = 2  # of a process, clock_getcpuclockid(3)
_FUTEX, _COMMAND = 202, 0x7F  # the system call, on x86-64, and what of its second argument is no flag
_WAITS = (0, 6, 9)  # FUTEX_WAIT, FUTEX_LOCK_PI, FUTEX_WAIT_BITSET
_SENT = (signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF, signal.SIGIO, signal.SIGUSR1, signal.SIGUSR2)
# What timers send, or others, as /proc shows sets of signals.
_WAKING = sum(1 << number - 1 for number in (*_SENT, *range(signal.SIGRTMIN, signal.SIGRTMAX + 1)))


class TimeLimit(NamedTuple):
    """`wall_s`: in seconds; `busy_s`: of processor time, for each thread; None: only `wall_s` counts."""

    wall_s: float
    busy_s: float | None = None


class RunClock:
    """The time of a run that has begun."""

    def __init__(self, pid: int, limit: TimeLimit, started_s: float, others: Set[int]) -> None:
        """`pid`: of the process that was started; `started_s`: by the monotonic clock; `others`: children of this
        process that have nothing to do with the run."""
        self._pid = pid
        self._until_s = started_s + limit.wall_s
        self._busy_s = limit.busy_s
        self._had_s = 0.0 if limit.busy_s is None else _busy_s(pid)
        self._others = others
        self._next_s = _FIRST_S
        self._before: list[str] = []  # how each thread waited when the run was last examined

    def left_s(self) -> float:
        return max(0.0, self._until_s - time.monotonic())

    def next_check_s(self) -> float:
        """When to examine the run again: ever less often, unless it may not be busy for long."""
        check_s = self._next_s
        self._next_s *= 1 if self._busy_s is not None else 2
        return check_s

    def will_not_end(self) -> bool:
        """Whether the run is busy for too long, or no thread of it can run again.

        That is so where all have waited for locks without a limit twice in a row, and none has run in between, where it
        has no other process, and where no signal that a timer sends would wake it.
        """
        try:
            folder = f"/proc/{self._pid}/task"
            threads = [f"{folder}/{thread}" for thread in sorted(os.listdir(folder))]
            if self._busy_s is not None and _busy_s(self._pid) - self._had_s > self._busy_s * len(threads):
                return True
            before, self._before = self._before, [_lock_waited_for(thread) for thread in threads]
        except OSError:  # a thread has ended, or this kernel does not show it
            return False
        if not all(self._before) or self._before != before:
            return False
        children = own_children()
        return children is not None and set(children) - self._others <= {self._pid}


def _busy_s(pid: int) -> float:
    try:
        return time.clock_gettime(~pid << 3 | _CPU_CLOCK)
    except OSError:
        return 0.0  # it has ended


def _lock_waited_for(thread: str) -> str:
    """The lock that a thread waits for without a limit, and how often it had been taken off a processor; "" if none."""
    words = _text(f"{thread}/syscall").split()
    if len(words) < 5 or int(words[0]) != _FUTEX or int(words[2], 16) & _COMMAND not in _WAITS or int(words[4], 16):
        return ""
    status = dict(line.split(":", 1) for line in _text(f"{thread}/status").splitlines())
    if int(status["SigCgt"], 16) & _WAKING or _text(f"{thread}/children").strip():
        return ""
    return " ".join((words[1], status["voluntary_ctxt_switches"], status["nonvoluntary_ctxt_switches"]))


def _text(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()
