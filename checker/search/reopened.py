"""A bug that needs no crash: what a driver prints changes if it is closed and reopened after one of its operations."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import numpy as np

from crashcheck.checker.budget import OutOfTime
from crashcheck.checker.evidence import CleanReopen
from crashcheck.checker.findings.identity import digest_of
from crashcheck.checker.oracles.references import ReopenDifference
from crashcheck.checker.results import Finding, FindingKind, Location, Outcome, StateCounts, StopReason, Verdict
from crashcheck.checker.search.crash_states import SearchResult
from crashcheck.checker.states.counting import StateCount
from crashcheck.checker.subject import Subject
from crashcheck.checker.token import ReopenToken, digest
from crashcheck.command import Command
from crashcheck.interruption import KeepOn
from crashcheck.runtime.trace_format import Kind as Event

MODEL = "no crash"


def nothing_checked(subject: Subject, why: StopReason, keep_on: KeepOn) -> SearchResult:
    """A search that ended before its first crash state. Feasible states are counted until `keep_on` raises."""
    count = StateCount(subject.space)
    with suppress(OutOfTime):
        keep_on()
        count.advance(keep_on)
    feasible = count.feasible()
    return SearchResult(
        stop_reason=why,
        states=StateCounts(feasible.value, feasible.exact, feasible.note, 0, 0, 0, 0, 0, 0),
        findings=(),
        uncertain=(),
        warnings=(),
        probes=0,
        seconds=0.0,
        failing=(),
    )


def stopped_by(
    difference: ReopenDifference, so_far: SearchResult, subject: Subject, check: Command, operations_file: str
) -> SearchResult:
    """A search that ends here: crash states are judged by what a clean reopen prints, which is wrong.

    What was found before stays: a state fails only after the reopens that its judgement rests on changed nothing.
    """
    checked = so_far.states.executed
    rest = f"the search ended there, after {checked} crash states" if checked else "no crash state was checked"
    finding = finding_of(difference, rest, subject, check, operations_file)
    return replace(so_far, stop_reason=StopReason.REOPEN, findings=(finding, *so_far.findings))


def finding_of(
    difference: ReopenDifference, rest: str, subject: Subject, check: Command, operations_file: str
) -> Finding:
    """The finding, at the mark of the operation after which a reopen changes the output."""
    ordinal, shown = difference.ordinal, difference.shown
    after = f"operation {ordinal} ({shown})"
    output = f"closed and reopened after {after}: {difference.how}\n{difference.before}, it does what it should\n"
    verdict = Verdict(Outcome.FAIL, 0, None, output, False, 0.0)
    return Finding(
        id=digest_of([FindingKind.REOPEN.value, shown]),
        kind=FindingKind.REOPEN,
        model=MODEL,
        message=f"a clean reopen after {after} changes the output: {difference.how}",
        location=_mark_of(ordinal, subject),
        evidence=CleanReopen(verdict, after, _by_hand(ordinal, check, operations_file)),
        replay=str(ReopenToken(digest(subject.trace), ordinal)),
        states=1,
        note=f"what operation {ordinal} leaves is lost or damaged by a clean close; {rest}",
    )


def _mark_of(ordinal: int, subject: Subject) -> Location:
    events = subject.trace.events
    marks = np.flatnonzero((events["kind"] == Event.MARK_BEGIN) & (events["aux"] == ordinal)).tolist()
    here = subject.provenance.of(marks[0]) if marks else None
    return here if here is not None else Location("", 0, 0, "", "", ())


def _by_hand(ordinal: int, check: Command, operations_file: str) -> str:
    """Shell commands that show it, with the files as they are before the workload in a folder POOL."""
    one, rest = (check.text.replace("{pool}", "POOL").replace("{ops}", name) for name in ("before.txt", "rest.txt"))
    return (
        f"head -n {ordinal} {operations_file} > before.txt; tail -n +{ordinal + 1} {operations_file} > rest.txt; "
        f"{one}; {rest}"
    )
