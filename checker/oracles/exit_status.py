"""The check's exit status is the answer: 0 is consistent, anything else is not."""

from __future__ import annotations

import os
from collections.abc import Mapping

from crashcheck.checker.execution.process import Ended
from crashcheck.checker.execution.tasks import FINAL
from crashcheck.checker.oracles.symptoms import signs
from crashcheck.checker.results import Outcome, Verdict


class ExitStatus:
    """Distinguishes a failing exit, a signal, a time-out and a limit."""

    name = "exit-status"

    def __init__(self) -> None:
        self.notes: tuple[str, ...] = ()

    def stages(self, point: int) -> tuple[bytes, ...]:
        return ()

    def context(self, point: int) -> bytes:
        return b""

    def arrived(self, ended: Ended, names: Mapping[str, str], point: int) -> None:
        pass

    def assume_reopenable(self) -> None:
        pass

    def is_borne_out(self, point: int) -> bool:
        return True

    def judge(self, ended: Ended, names: Mapping[str, str], point: int = FINAL) -> Verdict:
        exited = os.WIFEXITED(ended.status) and not ended.timed_out and ended.limit != "output"
        code = os.WEXITSTATUS(ended.status) if exited else None
        died_of = os.WTERMSIG(ended.status) if os.WIFSIGNALED(ended.status) and not ended.timed_out else None
        if ended.timed_out:
            outcome = Outcome.TIMEOUT
        elif ended.limit:
            outcome = Outcome.LIMIT
        elif died_of is not None:
            outcome = Outcome.SIGNAL
        else:
            outcome = Outcome.PASS if code == 0 else Outcome.FAIL
        output = ended.output.decode("utf-8", "replace")
        for path, name in names.items():
            output = output.replace(path, name)
        if ended.limit:
            output += f"\n[crashcheck: ended by the {ended.limit} limit]\n"
        # How far a run got before it was ended from outside proves nothing.
        telling = signs(output.splitlines()) if outcome in (Outcome.FAIL, Outcome.SIGNAL) else frozenset()
        return Verdict(outcome, code, died_of, output, ended.output_truncated, ended.seconds, telling)
