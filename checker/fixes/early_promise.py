"""Recognises a loss that needs no new sync, flush or fence: another thread acknowledges before it has ended."""

from __future__ import annotations

import numpy as np

from crashcheck.analyzer.arrays import among
from crashcheck.checker.findings import describe
from crashcheck.checker.findings.cause import Cause
from crashcheck.checker.results import FindingKind, Fix
from crashcheck.checker.subject import UPDATES, Subject
from crashcheck.runtime.trace_format import Kind as Event

_PROMISES = np.array([Event.MARK_END, Event.OUTPUT], dtype=np.uint8)


def advice(subject: Subject, cause: Cause) -> Fix | None:
    """To wait for what persists the lost update, if that is the next thing that its thread does to the files."""
    if cause.kind is not FindingKind.UNPERSISTED or cause.prefix or cause.lost is None:
        return None
    piece = subject.graph.whole(cause.lost)
    events, stored, durable = subject.trace.events, subject.event_of(piece), int(subject.graph.durable_from[piece])
    if durable > len(events):
        return None
    thread, persist = int(events["thread"][stored]), durable - 1
    own = events["thread"][stored:durable] == thread
    between = events["kind"][stored:durable]
    call = events[["site", "stack"]][stored:durable] == events[["site", "stack"]][stored]
    more = own & among(between, UPDATES) & ~call
    until = min(durable, subject.space.moment(cause.state.point))
    promised = np.isin(events["kind"][stored:until], _PROMISES)
    if int(events["thread"][persist]) != thread or np.any(more) or np.any(promised & own[: until - stored]):
        return None
    what = describe.event_words(subject, persist)
    where = describe.at_line(subject.provenance.of(persist))
    return Fix(
        "atomic",
        f"no flush or sync is missing: acknowledge only after {what}{where}, which makes "
        f"{describe.named(subject, cause.lost)} durable; another thread acknowledged before",
    )
