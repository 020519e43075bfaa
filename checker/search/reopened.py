"""A bug that needs no crash: what a driver prints changes if it is closed and reopened after one of its operations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from crashcheck.checker.evidence import CleanReopen
from crashcheck.checker.findings.identity import digest_of
from crashcheck.checker.oracles import Oracle
from crashcheck.checker.oracles.output_equivalence import OutputEquivalence
from crashcheck.checker.oracles.references import ReopenDifference
from crashcheck.checker.results import Finding, FindingKind, Location, Outcome, Verdict
from crashcheck.checker.search.crash_states import SearchResult
from crashcheck.checker.subject import Subject
from crashcheck.checker.token import ReopenToken, digest
from crashcheck.command import Command
from crashcheck.runtime.trace_format import Kind as Event

MODEL = "no crash"


def with_reopens(
    found: SearchResult, oracle: Oracle, subject: Subject, check: Command, operations: str
) -> SearchResult:
    """A search with the bugs that need no crash before what it found. `operations`: the name of the operations file."""
    if not isinstance(oracle, OutputEquivalence):
        return found
    by_name: dict[str, list[ReopenDifference]] = {}
    for _, difference in sorted(oracle.references.differences.items()):
        by_name.setdefault(" ".join(difference.shown.split()[:1]), []).append(difference)
    reopens = [_finding_of(one, others, subject, check, operations) for one, *others in by_name.values()]
    return replace(found, findings=(*reopens, *found.findings))


def _finding_of(
    difference: ReopenDifference,
    others: Sequence[ReopenDifference],
    subject: Subject,
    check: Command,
    operations_file: str,
) -> Finding:
    """The finding, at the mark of the operation after which a reopen changes the output.

    `others`: later operations of the same name, of which each is harmed by itself.
    """
    ordinal, after = difference.ordinal, difference.after
    output = f"closed and reopened after {after}: {difference.how}\n{difference.before}, it does what it should\n"
    verdict = Verdict(Outcome.FAIL, 0, None, output, False, 0.0)
    leaves = (
        f"what operation {ordinal} leaves is lost or damaged by a clean close, or the operation that prints otherwise "
        "reads what no file holds, such as freed memory"
    )
    if not ordinal:
        leaves = "to close and reopen the pool changes what follows before any operation is done"
    more = f"; so is what {len(others)} later operations of this name leave, first {others[0].after}" if others else ""
    return Finding(
        id=digest_of([FindingKind.REOPEN.value, difference.shown]),
        kind=FindingKind.REOPEN,
        model=MODEL,
        message=f"a clean reopen after {after} changes the output: {difference.how}",
        location=_mark_of(ordinal, subject),
        evidence=CleanReopen(verdict, after, _by_hand(ordinal, check, operations_file)),
        replay=str(ReopenToken(digest(subject.trace), ordinal)),
        states=1 + len(others),
        note=f"{leaves}{more}; crash states that rest on it are judged by how the driver ends alone",
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
