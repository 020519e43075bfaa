"""The first sentence of a finding."""

from __future__ import annotations

from crashcheck.analyzer.persistence.shown_names import shown_paths
from crashcheck.analyzer.trace.calls import injected_faults
from crashcheck.checker.findings import describe, file_losses
from crashcheck.checker.findings.cause import Cause
from crashcheck.checker.subject import Subject


def message(subject: Subject, cause: Cause) -> str:
    """The bug in one sentence: of recorded system calls by what it does to files, else by the stores of the program."""
    harm = file_losses.harm if subject.graph.family.names else describe.harm
    return harm(subject, cause) + _after_faults(subject, cause)


def _after_faults(subject: Subject, cause: Cause) -> str:
    """What had been made to fail by then: ", after fsync of a.db was made to fail with EIO"."""
    event = subject.space.moment(cause.state.point)
    faults = [fault for fault in injected_faults(subject.trace) if fault.event < event]
    if not faults:
        return ""
    show = shown_paths(subject.trace)
    first = faults[0]
    more = f" and {describe.count(len(faults) - 1, 'other call')}" if len(faults) > 1 else ""
    of = f" of {show(first.path)}" if first.path else ""
    return f", after {first.call}{of}{more} was made to fail with {first.error}"
