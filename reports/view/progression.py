"""How far each update had come at each step of a crash schedule: in the cache, on its way to the medium, durable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from crashcheck.checker.results import ScheduleStep

if TYPE_CHECKING:
    from crashcheck.reports.view.failing_behaviour import StepView

LINE_BYTES = 64
_NAMED = 6
_UPDATES = frozenset({"durable", "persisted", "lost"})


def progress(steps: Sequence[ScheduleStep], views: Sequence[StepView]) -> list[StepView]:
    """`views` of `steps`, which end at the crash, with what becomes of each update before it.

    Durable is what the model says (ScheduleStep.durable_from), at the first step shown that is not earlier; the crash
    itself counts as a step after the last. On its way is an update from the first flush of its line, or sync of its
    file, that is shown; a non-temporal store is from the start.
    """
    many = len(steps)
    durable = [_durable(steps, at) for at in range(many)]
    pending = [_pending(steps, at, until=end if end >= 0 else many) for at, end in enumerate(durable)]
    out = []
    for at, view in enumerate(views):
        started = [views[i].number for i in range(many) if pending[i] == at != i]
        made = [views[i].number for i in range(many) if durable[i] == at != i]
        effect = [f"on the way: {_numbers(started)}"] if started else []
        effect += [f"durable now: {_numbers(made)}"] if made else []
        out.append(replace(view, pending_at=pending[at], durable_at=durable[at], effect="; ".join(effect)))
    return out


def _durable(steps: Sequence[ScheduleStep], at: int) -> int:
    step = steps[at]
    if step.state not in _UPDATES or (step.state != "durable" and step.durable_from < 0):
        return -1
    if step.durable_from < 0:
        return len(steps)
    return next((i for i in range(at, len(steps)) if steps[i].event >= step.durable_from - 1), len(steps))


def _pending(steps: Sequence[ScheduleStep], at: int, until: int) -> int:
    step = steps[at]
    if step.state not in _UPDATES:
        return -1
    if step.detail.endswith("(non-temporal)"):
        return at
    return next((i for i in range(at + 1, until) if _starts(steps[i], step)), -1)


def _starts(step: ScheduleStep, update: ScheduleStep) -> bool:
    if step.what == "flush":
        first, last = step.offset // LINE_BYTES, (step.offset + max(step.size, 1) - 1) // LINE_BYTES
        return step.file == update.file and first <= update.granule <= last
    return step.what == "sync" and step.detail.endswith("begins") and step.file in ("", update.file)


def _numbers(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:_NAMED]))
    return f"{shown} and {len(numbers) - _NAMED} more" if len(numbers) > _NAMED else shown
