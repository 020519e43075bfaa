"""The check on the uncrashed images: where it fails on these, a failing crash state shows nothing."""

from __future__ import annotations

import signal

from crashcheck.checker.oracles.executor import Executor
from crashcheck.checker.results import Verdict
from crashcheck.checker.search.timeouts import timeout_for
from crashcheck.errors import CrashcheckError


def uncrashed(executor: Executor, *, first: bool, shown_pools: tuple[str, str] = ("{pool}", "{pool}")) -> None:
    """The final image, and the first one if asked, must pass before anything is crashed.

    `shown_pools`: folders with the final and the first image, for the command to try. Raises CrashcheckError
    check-rejects-final or check-rejects-first with the check's output: then the check, or the trace, is wrong.
    How long they take says how long those of crash states may take.
    """
    slowest_s = 0.0
    for final, wanted, pool in ((True, True, shown_pools[0]), (False, first, shown_pools[1])):
        if not wanted:
            continue
        verdict = executor.run_final() if final else executor.run_first()
        slowest_s = max(slowest_s, verdict.seconds)
        if verdict.passed:
            continue
        what = "after the workload, with nothing crashed" if final else "before the workload"
        command = executor.shown_plain(pool, final=final)
        advice = "" if final else ' If that is as it should be, set [check] first = "skip".'
        raise CrashcheckError(
            "check-rejects-final" if final else "check-rejects-first",
            f"the check fails on the image {what}: {_ended(verdict)}\n{_quoted(verdict.output)}",
            f"Try it yourself (on a copy, if it writes): {command}{advice}",
        )
    executor.set_timeout(timeout_for(slowest_s))


def _ended(verdict: Verdict) -> str:
    if verdict.signal is not None:
        return f"signal {verdict.signal} ({signal.Signals(verdict.signal).name})"
    if verdict.exit_code is not None:
        return f"exit status {verdict.exit_code}"
    return f"{verdict.outcome.value} after {verdict.seconds:.1f} s"


def _quoted(output: str) -> str:
    lines = output.rstrip().splitlines() or ["(it printed nothing)"]
    return "\n".join(f"  | {line}" for line in lines)
