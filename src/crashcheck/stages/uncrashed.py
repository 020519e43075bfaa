"""The check on images that no crash has touched: it has to pass there before anything is crashed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

from crashcheck.checker.budget import Left, OutOfTime, endless
from crashcheck.checker.execution.tasks import FINAL, FIRST
from crashcheck.checker.oracles.acknowledged import never_acknowledged
from crashcheck.checker.results import Outcome, Verdict
from crashcheck.checker.search.timeouts import timeout_for
from crashcheck.checker.verdicts.executor import Executor
from crashcheck.command import Command
from crashcheck.config import Config
from crashcheck.errors import CrashcheckError
from crashcheck.stages.recording import RecordedRun
from crashcheck.wording import listed

_SHOWN = 5  # names of what the workload left


def check_uncrashed(
    config: Config, run: RecordedRun, executor: Executor, *, forks: bool = False, left: Left = endless
) -> None:
    """Run the check on the first and the final image, where it has to pass. Raises what `uncrashed` raises.

    `forks`: from then on, crash states may be run from crashcheck_ready() on. `left`: as `uncrashed` has it.
    """
    recording = run.recording
    has_first = any(path.is_file() for path in recording.first.rglob("*"))
    with_first = config.check.first == "check" and has_first
    shown = (str(recording.pool), str(recording.first))
    setup = executor.workers.setup
    uncrashed(
        executor,
        first=with_first,
        shown_pools=shown,
        trace_lacks=run.unaccounted,
        remarks=lambda: (
            *never_acknowledged(setup.command.command, run.subject.trace, setup.recorded_stdout),
            *_not_set(config),
        ),
        forks=forks,
        left=left,
    )


def uncrashed(
    executor: Executor,
    *,
    first: bool,
    shown_pools: tuple[str, str] = ("{pool}", "{pool}"),
    trace_lacks: Callable[[], Sequence[str]] = tuple,
    remarks: Callable[[], Sequence[str]] = tuple,
    forks: bool = False,
    left: Left = endless,
) -> None:
    """The final image, and the first one if asked, must pass before anything is crashed.

    `shown_pools`: folders with the final and the first image, for the command to try; `trace_lacks`: what the final
    image, which is made from the trace, lacks of what the workload left; `remarks`: why the check may
    fail on it, such as that nothing which the workload finished is known to it. Raises CrashcheckError
    check-rejects-final, trace-lacks-updates or check-rejects-first with the check's output; and OutOfTime where `left`
    ends a run before the check's own limit does.
    How long they take decides how long those of crash states may take.
    """
    slowest_s = 0.0
    for final, wanted, pool in ((True, True, shown_pools[0]), (False, first, shown_pools[1])):
        if not wanted:
            continue
        left_s = left()
        if left_s is not None and left_s <= 0:
            raise OutOfTime
        if final:
            verdict = executor.try_copies(left_s) if forks else executor.run_final(left_s)
        else:
            verdict = executor.run_first(left_s)
        if verdict.outcome is Outcome.TIMEOUT and left_s is not None and verdict.seconds >= left_s:
            raise OutOfTime
        slowest_s = max(slowest_s, verdict.seconds)
        if verdict.passed:
            continue
        what = "after the workload, with nothing crashed" if final else "before the workload"
        command = executor.shown(FINAL if final else FIRST, pool)
        advice = "" if final else ' If that is as it should be, set [check] first = "skip".'
        hints = "".join(f"{remark[0].upper()}{remark[1:]}. " for remark in remarks()) if final else ""
        if final and (lacks := trace_lacks()):
            raise CrashcheckError(
                "trace-lacks-updates",
                f"the check fails on the image that the trace gives, which is not what the workload left: "
                f"{_ended(verdict)}\n{_quoted(verdict.output)}\n" + "\n".join(f"  {line}" for line in lacks),
                f"{hints}Record what wrote there: docs/limits.md lists what is not recorded.",
            )
        setup = executor.workers.setup
        gone = _not_left(setup.command.command, Path(pool)) if final else ""
        limit = ""
        if mapped := executor.workers.limits.memory_bytes:  # one that needs more passes by hand
            limit = f"Here it may allocate no more than {mapped >> 20} MiB: [check] memory_mib. "
        raise CrashcheckError(
            "check-rejects-final" if final else "check-rejects-first",
            f"the check fails on the image {what}: {_ended(verdict)}\n{_quoted(verdict.output)}",
            f"{gone}{hints}{limit}Try it yourself (on a copy, if it writes): {command}{advice}",
        )
    executor.set_timeout(timeout_for(slowest_s))


def _not_set(config: Config) -> list[str]:
    """A remark on what the workload's environment has and the check's lacks, such as where libraries are."""
    names = [name for name in config.workload.env if name not in config.check.env]
    return [f"[workload] env, and not [check] env, sets {listed(names, _SHOWN)}"] if names else []


def _not_left(command: Command, pool: Path) -> str:
    """Of a check that names a file of {pool}: that the workload left none of that name, and what it left."""
    paths = (word.partition("{pool}/")[2] for word in command.named())
    plain = (path for path in paths if path and not set("{}*?[$") & set(path))
    missing = next((path for path in plain if pool.is_dir() and not os.path.lexists(pool / path)), None)
    if missing is None:
        return ""
    return f"The workload left no {{pool}}/{missing}, but {listed(sorted(os.listdir(pool)), _SHOWN) or 'nothing'}. "


def _ended(verdict: Verdict) -> str:
    if verdict.signal is not None:
        return f"signal {verdict.signal} ({signal.Signals(verdict.signal).name})"
    if verdict.exit_code is not None:
        return f"exit status {verdict.exit_code}"
    return f"{verdict.outcome.value} after {verdict.seconds:.1f} s"


def _quoted(output: str) -> str:
    lines = output.rstrip().splitlines() or ["(it printed nothing)"]
    return "\n".join(f"  | {line}" for line in lines)
