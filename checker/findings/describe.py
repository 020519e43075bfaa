"""A cause in words: what may happen to which update, and where the crash comes."""

from __future__ import annotations

from crashcheck.checker.findings.classify import Cause
from crashcheck.checker.results import Kind as FindingKind
from crashcheck.checker.results import Location
from crashcheck.checker.states.space import CrashPoint
from crashcheck.checker.subject import Subject
from crashcheck.runtime.trace_format import FlushKind, Kind, SyncKind
from crashcheck.source import spoken

SYNC_NAMES = {
    SyncKind.MSYNC: "msync",
    SyncKind.MSYNC_ASYNC: "msync(MS_ASYNC)",
    SyncKind.FSYNC: "fsync",
    SyncKind.FDATASYNC: "fdatasync",
    SyncKind.SYNC: "sync",
    SyncKind.OSYNC: "the O_SYNC write",
    SyncKind.ODSYNC: "the O_DSYNC write",
    SyncKind.SYNC_RANGE: "sync_file_range",
    SyncKind.DIRSYNC: "fsync of the directory",
}
FLUSH_NAMES = {FlushKind.CLFLUSH: "clflush", FlushKind.CLFLUSHOPT: "clflushopt", FlushKind.CLWB: "clwb"}


def location(subject: Subject, piece: int) -> Location:
    """The place of a piece; where none is known a Location without line, whose file is the watched file."""
    here = subject.provenance.of(subject.event_of(piece))
    return here if here is not None else Location(subject.path_of(piece), 0, 0, "", "", ())


def named(subject: Subject, piece: int) -> str:
    """ "`entry.valid` at hash.c:42", or by file offset where no source place is known."""
    described = subject.graph.piece(piece)
    path = subject.path_of(piece)
    here = subject.provenance.of(subject.event_of(piece))
    if described.kind == "exists":
        what = f"the name of {path}"
    elif described.kind == "size":
        what = f"the size {described.offset} of {path}"
    elif here is not None and here.variable:
        what = f"`{here.variable}`"
    else:
        row = subject.trace.events[described.event]
        what = f"{count(int(row['size']), 'byte')} at offset {int(row['offset']):#x} of {path}"
        if here is not None and here.expression:
            what = f"`{here.expression}` ({what})"
    return f"{what} at {spoken(here.file)}:{here.line}" if here is not None and here.line else what


def message(subject: Subject, cause: Cause) -> str:
    """One sentence."""
    lost = named(subject, cause.lost) if cause.lost is not None else ""
    kept = named(subject, cause.kept) if cause.kept is not None else ""
    point = subject.space.points[cause.state.point]
    if cause.kind is FindingKind.UNPERSISTED:
        if not lost:
            return f"the check fails once {_promise(point, cause.since)}, although every update has persisted"
        if cause.prefix:
            return f"{lost} was not yet stored when {_promise(point, cause.since)}"
        return f"{lost} may be lost although {_promise(point, cause.since)}"
    if cause.kind is FindingKind.ORDERING:
        return f"{kept} may persist before {lost}"
    if cause.torn:
        what = f"{kept} may persist in part"
        if subject.graph.piece(cause.kept or 0).kind == "data" and cause.lost is not None and cause.kept is not None:
            what += f" (offset {_offset(subject, cause.kept)} without offset {_offset(subject, cause.lost)})"
    elif kept and lost:
        what = f"a crash after {kept} and before {lost}"
    elif kept:
        what = f"a crash after {kept}"
    else:
        what = f"a crash before {lost}" if lost else "a crash"
    if cause.kind is FindingKind.RECOVERY_FAILURE:
        end = "kills the check" if cause.verdict.signal is not None else "makes the check hang"
        return f"{what}, which {end}" if cause.torn else f"{what} {end}"
    return f"{what}, which the check rejects" if cause.torn else f"{what} leaves an inconsistent image"


def crash_point(subject: Subject, cause: Cause) -> tuple[str, Location | None]:
    """ "before the fence at hash.c:44, in operation 3; 2 operations acknowledged", and the place."""
    point = subject.space.points[cause.state.point]
    event = int(point.event) if cause.moment is None else cause.moment
    events = subject.trace.events
    if event >= len(events):
        words, here = "at the end of the run", None
    else:
        here = subject.provenance.of(event)
        words = f"before {event_words(subject, event)}"
        if here is not None and here.line:
            words += f" at {spoken(here.file)}:{here.line}"
    if point.begun > point.acked:
        words += f", in operation {point.begun}"
    last = subject.space.points[len(subject.space.points) - 1]
    told = [f"{count(int(point.acked), 'operation')} acknowledged"] if last.begun or point.acked else []
    told += [f"{count(int(point.stdout_bytes), 'byte')} printed"] if last.stdout_bytes else []
    return "; ".join([words, *told]), here


def count(number: int, noun: str) -> str:
    """ "1 byte", "2 bytes"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def event_words(subject: Subject, event: int) -> str:
    """What an event is, with an article."""
    row = subject.trace.events[event]
    kind = int(row["kind"])
    if kind == Kind.FENCE:
        return "the fence"
    if kind == Kind.FLUSH:
        return f"the {FLUSH_NAMES.get(FlushKind(int(row['aux'])), 'flush')}"
    if kind in (Kind.SYNC_BEGIN, Kind.SYNC_END):
        name = SYNC_NAMES.get(SyncKind(int(row["aux"])), "a sync")
        return name if kind == Kind.SYNC_BEGIN else f"the return of {name}"
    if kind == Kind.MARK_BEGIN:
        return f"operation {int(row['aux'])} begins"
    if kind == Kind.MARK_END:
        return f"operation {int(row['aux'])} is acknowledged"
    names = {
        Kind.STORE: "the store",
        Kind.WRITE: "the write",
        Kind.TRUNCATE: "the truncation",
        Kind.CREATE: "the file is created",
        Kind.OUTPUT: "output is printed",
    }
    return names.get(Kind(kind), "the next event")


def _promise(point: CrashPoint, since: int | None) -> str:
    if since is not None and point.acked > since:
        return f"operation {point.acked} was acknowledged"
    return "later output had been printed"


def _offset(subject: Subject, piece: int) -> str:
    return hex(subject.graph.piece(piece).offset)
