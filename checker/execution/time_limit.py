"""How long one run of the check may take, and which runs are seen before that not to end by themselves.

Crash states that hang cost their whole limit each. But where each thread waits for a lock that only another of them
could release, or the only one repeats itself, waiting is useless; and a limit that a longer one confirms
(checker/search/timeouts.py) may also end runs that are busy for much longer than the check has ever been.
"""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Set
from typing import NamedTuple

from crashcheck.checker.execution.repetition import STEPS, repeats
from crashcheck.runtime.supervise import own_children

_FIRST_S = 0.05  # until a run is first examined
_REPEATS_S = 0.1  # until it is first stopped, to see whether it repeats itself
_PART = 4  # of its limit of processor time, and of the steps, where it has one
_CPU_CLOCK = 2  # of a process, clock_getcpuclockid(3)
_FUTEX, _COMMAND = 202, 0x7F  # the system call, on x86-64, and what of its second argument is no flag
_WAIT4, _RUNNING = "61", "running"  # what /proc shows of a thread: the number of its system call, or this
_WAITS = (0, 6, 9)  # FUTEX_WAIT, FUTEX_LOCK_PI, FUTEX_WAIT_BITSET
_SENT = (signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF, signal.SIGIO, signal.SIGUSR1, signal.SIGUSR2)
# What timers send, or others, as /proc shows sets of signals.
_WAKING = sum(1 << number - 1 for number in (*_SENT, *range(signal.SIGRTMIN, signal.SIGRTMAX + 1)))


class TimeLimit(NamedTuple):
    """`wall_s`: in seconds; `busy_s`: of processor time, for each thread; None: only `wall_s` counts.

    `stops`: whether a run may be stopped, to see whether it repeats itself; one that explores ends by itself.
    """

    wall_s: float
    busy_s: float | None = None
    stops: bool = True


class RunClock:
    """The time of a run that has begun."""

    def __init__(self, pid: int, limit: TimeLimit, started_s: float, others: Set[int]) -> None:
        """`pid`: of the process that was started; `started_s`: by the monotonic clock; `others`: children of this
        process that have nothing to do with the run."""
        self._pid = pid
        self._started_s = started_s
        self._repeats_s = math.inf if not limit.stops else _REPEATS_S if limit.busy_s is None else limit.busy_s / _PART
        self._until_s = started_s + limit.wall_s
        self._busy_s = limit.busy_s
        self._had_s = _busy_s(pid)
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
        """Whether the run is busy for too long, no thread of it can run again, or its only one repeats itself.

        Threads cannot run again where all have waited for locks without a limit twice in a row, and none has run in
        between. It has no other process, and no signal that a timer sends would wake it.
        """
        try:
            folder = f"/proc/{self._pid}/task"
            threads = [f"{folder}/{thread}" for thread in sorted(os.listdir(folder))]
            if self._busy_s is not None and _busy_s(self._pid) - self._had_s > self._busy_s * len(threads):
                return True
            before, self._before = self._before, [_lock_waited_for(thread) for thread in threads]
            waits = all(self._before) and self._before == before
            is_time = time.monotonic() - self._started_s >= self._repeats_s
            alone = _runs_alone(self._pid) if is_time and not waits else 0
            if alone and _busy_s(alone) - (self._had_s if alone == self._pid else 0) < self._repeats_s:
                alone = 0  # it has waited for a processor
        except OSError:  # a thread has ended, or this kernel does not show it
            return False
        children = own_children() if waits or alone else None
        if children is None or not set(children) - self._others <= {self._pid}:
            return False
        return waits or self._repeats(alone)

    def _repeats(self, pid: int) -> bool:
        """Whether a process does, which costs the run no time. It is tried ever less often."""
        before_s = time.monotonic()
        self._repeats_s *= 2
        found = repeats(pid, STEPS if self._busy_s is None else STEPS // _PART)
        self._until_s += time.monotonic() - before_s
        return found


def _busy_s(pid: int) -> float:
    try:
        return time.clock_gettime(~pid << 3 | _CPU_CLOCK)
    except OSError:
        return 0.0  # it has ended


def _runs_alone(pid: int) -> int:
    """The process that runs, of one thread, while each of its parents from `pid` on waits for it alone; 0 if none."""
    while len(os.listdir(f"/proc/{pid}/task")) == 1:
        thread = f"/proc/{pid}/task/{pid}"
        call, children = _text(f"{thread}/syscall").split(), _text(f"{thread}/children").split()
        if _woken_by_timers(_status(thread)) or call[:1] != [_WAIT4 if children else _RUNNING] or len(children) > 1:
            return 0
        if not children:
            return pid
        pid = int(children[0])
    return 0


def _woken_by_timers(status: dict[str, str]) -> bool:
    """Whether a process handles a signal that a timer sends."""
    return bool(int(status["SigCgt"], 16) & _WAKING)


def _status(thread: str) -> dict[str, str]:
    return dict(line.split(":", 1) for line in _text(f"{thread}/status").splitlines())


def _lock_waited_for(thread: str) -> str:
    """The lock that a thread waits for without a limit, and how often it had been taken off a processor; "" if none."""
    words = _text(f"{thread}/syscall").split()
    if len(words) < 5 or int(words[0]) != _FUTEX or int(words[2], 16) & _COMMAND not in _WAITS or int(words[4], 16):
        return ""
    status = _status(thread)
    if _woken_by_timers(status) or _text(f"{thread}/children").strip():
        return ""
    return " ".join((words[1], status["voluntary_ctxt_switches"], status["nonvoluntary_ctxt_switches"]))


def _text(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()
