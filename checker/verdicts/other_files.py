"""Runs of a check on files that are no crash image: what a second run left, and an image that was changed."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from crashcheck.checker.budget import Left, OutOfTime, endless
from crashcheck.checker.images.real_files import RealFiles, write_real_image
from crashcheck.checker.results import Outcome, Verdict
from crashcheck.checker.states.space import CrashState
from crashcheck.checker.verdicts.executor import Executor


def run_on_files(
    executor: Executor, real: RealFiles, point: int, acknowledged: tuple[int, int], *, left: Left = endless
) -> Verdict:
    """The check's verdict on files that a second run really had, at a crash point of the first.

    `acknowledged`: operations ended and bytes printed by then, if not fixed for all points. Files that are not
    watched are as before the run. It has all the time that the limits allow; where `left` gives less than that, and
    than it takes, OutOfTime is raised.
    """

    def run(most_s: float | None) -> Verdict:
        setup = executor.workers.setup
        with tempfile.TemporaryDirectory(dir=executor.home) as folder:
            files = Path(folder) / "files"
            write_real_image(setup.first, real.folder, files, setup.patterns)
            if executor.workers.acknowledged is None:
                setup = replace(setup, recorded_stdout=real.stdout, addresses=real.addresses)
            return executor.run_on(files, setup, point, acknowledged, most_s)

    return _in_time(left, run)


def run_changed(
    executor: Executor,
    state: CrashState,
    change: Callable[[Path], None],
    limit_s: float | None = None,
    *,
    left: Left = endless,
) -> Verdict:
    """The check's verdict on a state's image after `change`, given its folder; with all the time, or `limit_s`.

    No crash leaves that image: it shows only why the check fails. OutOfTime as from `run_on_files`.
    """

    def run(most_s: float | None) -> Verdict:
        images, setup = executor.images, executor.workers.setup
        with tempfile.TemporaryDirectory(dir=executor.home) as folder:
            files = Path(folder) / "files"
            images.write_image(state, files)
            change(files)
            return executor.run_on(files, setup, state.point, images.acknowledged(state.point), most_s)

    return _in_time(left, run, limit_s)


def _in_time(left: Left, run: Callable[[float | None], Verdict], limit_s: float | None = None) -> Verdict:
    """The verdict of a run that takes so many seconds at most. OutOfTime where `left` gives less and it needs more."""
    left_s = left()
    if left_s is None or (limit_s is not None and limit_s < left_s):
        return run(limit_s)
    if left_s <= 0:
        raise OutOfTime
    verdict = run(left_s)
    if verdict.outcome is Outcome.TIMEOUT and verdict.seconds >= left_s:
        raise OutOfTime  # the budget ended this run, so it shows nothing
    return verdict
