"""Recognises an answer that rests on data of another thread before these are durable: a crash takes back the answer.

The check decides that something is lost although it was acknowledged, and minimising finds the acknowledgement since
which that is so. The trace shows why that was too early: its thread had read the lost update, which another one made.
"""

from __future__ import annotations

import numpy as np

from crashcheck.analyzer.arrays import among
from crashcheck.analyzer.persistence.pieces import DATA
from crashcheck.checker.findings import describe
from crashcheck.checker.findings.cause import Cause
from crashcheck.checker.results import FindingKind
from crashcheck.checker.subject import UPDATES, Subject

_MOST_LOST = 64  # updates: a state that was minimised has few


def answered_from(subject: Subject, cause: Cause) -> str:
    """Which thread read a lost update of another one, and then answered; "" if the trace does not show that."""
    answer = subject.space.points.last_acknowledging(cause.state.point)
    if cause.kind is not FindingKind.UNPERSISTED or cause.prefix or answer is None or not len(subject.trace.loads):
        return ""
    threads = subject.trace.events["thread"]
    maybe = ""
    for piece in _lost(subject, cause):
        stored = subject.event_of(piece)
        if stored >= answer or threads[stored] == threads[answer]:
            continue
        load, sure = _read(subject, piece, stored, answer)
        if load is not None and sure:
            return _words(subject, piece, load, answer, "")
        if load is not None:
            maybe = maybe or _words(subject, piece, load, answer, "perhaps ")
    return maybe


def _words(subject: Subject, piece: int, load: int, answer: int, perhaps: str) -> str:
    answered = describe.at_line(subject.provenance.of(answer))
    read = describe.at_line(subject.provenance.of_load(load))
    again = ", perhaps again after it was stored: repeated reads are not recorded" if perhaps else ""
    return (
        f"{perhaps}answered from data that a crash can lose: the thread that answered{answered} had read "
        f"{describe.name_of(subject, piece)}{read}{again}; another thread stores it, and had not made it durable"
    )


def _lost(subject: Subject, cause: Cause) -> list[int]:
    """The bytes that the state lost, the blamed ones first."""
    lost = subject.space.lost(cause.state)
    pieces = dict.fromkeys(
        subject.graph.whole(piece) for piece in (*((cause.lost,) if cause.lost is not None else ()), *lost)
    )
    return [piece for piece in pieces if int(subject.graph.kind[piece]) == DATA][:_MOST_LOST]


def _read(subject: Subject, piece: int, stored: int, answer: int) -> tuple[int | None, bool]:
    """The last read by the answering thread, before it answered, of bytes that a piece had stored and nothing since.

    Second: whether it is known to be after the store. A read that repeats an earlier one of its site and call stack may
    be left out of the trace: then the earlier one is given.
    """
    trace, graph = subject.trace, subject.graph
    loads, events = trace.loads, trace.events
    low, high = int(graph.offset[piece]), int(graph.offset[piece]) + int(graph.size[piece])
    until = _replaced(subject, int(graph.file[piece]), low, high, stored, answer)
    own = np.flatnonzero((loads["thread"] == events["thread"][answer]) & (loads["seq"] <= events["seq"][answer]))
    rows = loads[own]
    here = (rows["file"] == graph.file[piece]) & (rows["offset"] < high) & (rows["offset"] + rows["size"] > low)
    after = here & (rows["seq"] > events["seq"][stored]) & (rows["seq"] <= events["seq"][until])
    if after.any():
        return int(own[np.flatnonzero(after)[-1]]), True
    for at in np.flatnonzero(here & (rows["seq"] <= events["seq"][stored]))[::-1].tolist():
        same = (rows["site"][at + 1 :] == rows["site"][at]) & (rows["stack"][at + 1 :] == rows["stack"][at])
        following = rows["seq"][at + 1 :][same]
        if not len(following) or following[0] > events["seq"][stored]:
            return int(own[at]), False
    return None, False


def _replaced(subject: Subject, file: int, low: int, high: int, stored: int, answer: int) -> int:
    """The first event after `stored` that updates some of these bytes of a file, but `answer` at the latest."""
    rows = subject.trace.events[stored + 1 : answer]
    ends = rows["offset"] + np.maximum(rows["size"], 1)
    updates = among(rows["kind"], UPDATES) & (rows["file"] == file)
    again = np.flatnonzero(updates & (rows["offset"] < high) & (ends > low))
    return stored + 1 + int(again[0]) if len(again) else answer
