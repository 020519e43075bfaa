"""The orders of actions in which nodes failed in the last run: the next one takes them first, on whatever it builds.

They are in the file of failing states (failing_states.py), as tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from crashcheck.checker.baseline import Known, matched
from crashcheck.checker.results import Earlier, FindingKind, RunResult
from crashcheck.checker.token import OrderToken, parse
from crashcheck.errors import CrashcheckError
from crashcheck.runtime.nodes.actions import Action
from crashcheck.stages.failing_states import FailingOrder, read_failing, write_failing

Order = tuple[Action, ...]


class LastOrders:
    """What failed in an earlier run, and what came of it. `path`: the file; None: nothing is read or written."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._failing = list(_readable(read_failing(path).orders)) if path is not None else []

    def orders(self) -> Sequence[Order]:
        """Those to be taken first, each once."""
        return list(dict.fromkeys(order for _, order in self._failing))

    def searched(self, result: RunResult, passed: frozenset[Order], commit: str) -> RunResult:
        """The result that names which pass now, and the file brought up to date.

        `passed`: the orders that came to their end and passed. Raises CrashcheckError(report-unwritable).
        """
        if self._path is None:
            return result
        found = result.all_findings
        met = set(matched(found, [Known(one.id) for one, _ in self._failing]).values())
        none_fails = not found and result.states.feasible_exact
        again, left = [], []
        for number, (one, order) in enumerate(self._failing):
            if number in met:
                continue
            fixed = order in passed or none_fails
            fate = "fixed" if fixed else "not-seen"
            ran = int(order in passed)
            again.append(Earlier(one.id, FindingKind.ACTIONS, one.message, fate, ran, one.commit))
            left += [] if fixed else [one]
        now = [FailingOrder(one.id, one.message[:2_000], one.replay, commit) for one in found]
        write_failing(self._path, orders=(*now, *left))
        return replace(result, again=tuple(again))


def _readable(failing: Sequence[FailingOrder]) -> Iterator[tuple[FailingOrder, Order]]:
    """The file is data of whoever ran before: what is no token of nodes is left out."""
    for one in failing:
        try:
            token = parse(one.token)
        except CrashcheckError:
            continue
        if isinstance(token, OrderToken):
            yield one, token.actions
