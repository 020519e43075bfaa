"""A cause in words: which update can be lost or survive alone, and where the crash happens."""

from __future__ import annotations

import numpy as np

from crashcheck.analyzer.persistence.pieces import DATA
from crashcheck.checker.findings.cause import Cause
from crashcheck.checker.results import FindingKind as FindingKind
from crashcheck.checker.results import Location, Outcome
from crashcheck.checker.states.points import CrashPoint
from crashcheck.checker.subject import Subject
from crashcheck.runtime.trace_format import NAME_KINDS, FlushKind, Kind, SyncKind
from crashcheck.source import spoken_line

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
_DEATHS = {Outcome.TIMEOUT: "makes the check hang", Outcome.SIGNAL: "kills the check"}
FLUSH_NAMES = {FlushKind.CLFLUSH: "clflush", FlushKind.CLFLUSHOPT: "clflushopt", FlushKind.CLWB: "clwb"}


def location_of(subject: Subject, piece: int) -> Location:
    """The source place of a piece; where none is known a Location without line, whose file is the watched file."""
    here = subject.place(piece)
    return here if here is not None else Location(subject.path_of(piece), 0, 0, "", "", ())


def named(subject: Subject, piece: int) -> str:
    """ "`entry.valid` at hash.c:42", or by file offset where no source place is known."""
    return " at ".join(filter(None, (name_of(subject, piece), _line_of_update(subject, piece))))


def name_of(subject: Subject, piece: int) -> str:
    """ "`entry.valid`", "the rename of a.tmp to a", or "8 bytes at offset 0x40 of FILE" where nothing else is known."""
    described = subject.graph.piece(piece)
    if described.kind == "name":
        graph = subject.graph
        return graph.name_change(piece).text
    path = subject.path_of(piece)
    here = subject.place(piece)
    if described.kind == "exists":
        removed = int(subject.graph.old_size[subject.graph.whole(piece)]) > 0
        return f"the {'removal' if removed else 'name'} of {path}"
    if described.kind == "size":
        empties = not described.offset and subject.graph.old_size[subject.graph.whole(piece)]
        return f"the emptying of {path}" if empties else f"the size {described.offset} of {path}"
    row = subject.trace.events[described.event]
    if int(row["kind"]) == Kind.RENAME:
        source = subject.trace.files.get(int(row["aux"]))
        return f"the rename of {source.path if source else 'a file elsewhere'} to {path}"
    if here is not None and here.variable:
        return f"`{here.variable}`"
    what = f"{count(int(row['size']), 'byte')} at offset {int(row['offset']):#x} of {path}"
    return f"`{here.expression}` ({what})" if here is not None and here.expression else what


def line_of(here: Location | None) -> str:
    """ "hash.c:42"; "" where no line is known."""
    return spoken_line(here.file, here.line) if here is not None and here.line else ""


def at_line(here: Location | None) -> str:
    """ " at hash.c:42"; "" where no line is known."""
    line = line_of(here)
    return f" at {line}" if line else ""


def _line_of_update(subject: Subject, piece: int) -> str:
    return line_of(subject.place(piece))


def _place(subject: Subject, piece: int) -> str:
    """The line of an update in parentheses, " (hash.c:42)"; "" where none is known.

    Of an update in a library, with the call in the project's own source: " (obj.c:42, called from app.c:7)".
    """
    here = subject.place(piece)
    shown = [_line_of_update(subject, piece)]
    if here is not None and here.file.startswith("/") and here.called_from is not None:
        shown.append(f"called from {spoken_line(here.called_from.file, here.called_from.line)}")
    shown = list(filter(None, shown))
    return f" ({', '.join(shown)})" if shown else ""


def _both(subject: Subject, kept: int, lost: int) -> tuple[str, str, str]:
    """The names of two updates, each with its line; a line that both share is third, for the sentence's end.

    Two elements of an array, or one member of two objects, have one name: their offsets tell them apart.
    """
    names, lines = (name_of(subject, kept), name_of(subject, lost)), (_place(subject, kept), _place(subject, lost))
    if names[0] == names[1] and subject.graph.piece(kept).kind == subject.graph.piece(lost).kind == "data":
        offsets = _offset(subject, kept), _offset(subject, lost)
        if offsets[0] == offsets[1]:
            names = names[0], "the next store to it"
        else:
            names = f"{names[0]} at offset {offsets[0]}", f"{names[1]} at offset {offsets[1]}"
    if lines[0] == lines[1]:
        return (*names, lines[0])
    return names[0] + lines[0], names[1] + lines[1], ""


def harm(subject: Subject, cause: Cause) -> str:
    """The bug in one sentence, with the lines of the updates that it names: the one to annotate is first."""
    if not (cause.complete or cause.prefix):
        return _not_minimised(subject, cause)
    if cause.kind is FindingKind.UNPERSISTED:
        return _loss_after_promise(subject, cause)
    if cause.kind is FindingKind.ORDERING and cause.kept is not None and cause.lost is not None:
        kept, lost, line = _both(subject, cause.kept, cause.lost)
        return f"{kept} can survive a crash without {lost}{line}"
    if cause.torn and cause.kept is not None:
        return _torn_store(subject, cause, cause.kept)
    moment, line = _moment(subject, cause)
    return f"{moment} {_harm(cause)}{line}"


def _not_minimised(subject: Subject, cause: Cause) -> str:
    """What was run and failed, without a claim which of the lost updates is why."""
    lost = subject.space.lost(cause.state)
    first = subject.first_of(lost)
    more = f" and {count(len(lost) - 1, 'other update')}" if len(lost) > 1 else ""
    harms = _DEATHS.get(cause.verdict.outcome, "fails the check")
    return f"a crash that loses {name_of(subject, first)}{_place(subject, first)}{more} {harms}"


def _loss_after_promise(subject: Subject, cause: Cause) -> str:
    """What was acknowledged or printed, and is lost all the same."""
    promised = _promise(subject.space.points[cause.state.point], cause.since)
    if cause.lost is None:
        return f"the check fails after {promised}, although every update has persisted"
    lost, line = name_of(subject, cause.lost), _place(subject, cause.lost)
    return f"{lost} {'was not yet stored when' if cause.prefix else 'can be lost after'} {promised}{line}"


def _torn_store(subject: Subject, cause: Cause, kept: int) -> str:
    """Which part of one store or library call persists without which other part."""
    kind, lost = subject.graph.piece(kept).kind, cause.lost
    if kind != "data" and lost is not None and subject.graph.piece(lost).kind == "data":
        # A write past the end: the file's size and the bytes persist apart.
        what = f"{name_of(subject, kept)} can survive a crash without {name_of(subject, lost)}"
        reads = " and reads zeros there" if _reads_zeros(subject, lost) else ""
        return f"{what} of the same call, which {_harm(cause)}{reads}{_place(subject, kept)}"
    what = f"part of {name_of(subject, kept)} can survive a crash without the rest"
    if kind == "data" and lost is not None:
        what += f" (offset {_offset(subject, kept)} without offset {_offset(subject, lost)})"
    return f"{what}, which {_harm(cause)}{_place(subject, kept)}"


def _reads_zeros(subject: Subject, lost: int) -> bool:
    """Whether nothing was written before where a lost update is, nor was the first image anything but zeros there."""
    graph = subject.graph
    low, size = int(graph.offset[lost]), int(graph.size[lost])
    same = (graph.file[:lost] == graph.file[lost]) & (graph.kind[:lost] == DATA)
    before = graph.offset[:lost].astype(np.int64)
    if np.any(same & (before < low + size) & (before + graph.size[:lost].astype(np.int64) > low)):
        return False
    words = np.arange(low // 8, -(-(low + size) // 8), dtype=np.int64)
    return not subject.content.first.words(int(graph.file[lost]), words).any()


def _moment(subject: Subject, cause: Cause) -> tuple[str, str]:
    """Between which updates the crash is, and what ends the sentence: the line of an update, or of both."""
    end = section_end(subject, cause)
    if cause.kept is not None and end is not None:
        kept, lost, line = _both(subject, cause.kept, end)
        return f"a crash between {kept} and {lost}", line
    if cause.kept is not None:
        return f"a crash after {name_of(subject, cause.kept)}", _place(subject, cause.kept)
    if cause.lost is not None:
        return f"a crash before {name_of(subject, cause.lost)}", _place(subject, cause.lost)
    return "a crash", ""


def _harm(cause: Cause) -> str:
    """What a state does to the check."""
    if cause.kind is FindingKind.RECOVERY_FAILURE:
        return _DEATHS[cause.verdict.outcome]
    return "fails the check" if cause.torn else "leaves a state that the check rejects"


def section_end(subject: Subject, cause: Cause) -> int | None:
    """The update with which a section that is not atomic ends: the program is right again with it, where that is known.

    Else the first that is lost, which may be in a library that the program calls between two updates of its own. So it
    is of system calls, whose sentences are about what that first one does to the file.
    """
    later = _later_end(subject, cause)
    return cause.lost if later is None or subject.graph.family.names else later


def until(subject: Subject, cause: Cause) -> str:
    """Where a section that is not atomic ends, if it continues after the two updates that its sentence names."""
    end = _later_end(subject, cause)
    if end is None or not subject.graph.family.names:
        return ""
    return f"each crash from there until {name_of(subject, end)}{_place(subject, end)} leaves such a state"


def _later_end(subject: Subject, cause: Cause) -> int | None:
    """The update that ends a section, if it is later than the first that is lost."""
    lost, end = cause.lost, cause.until
    later = end is not None and lost is not None and subject.event_of(end) > subject.event_of(lost)
    return end if later else None


def crash_point(subject: Subject, cause: Cause) -> tuple[str, Location | None]:
    """ "before the fence at hash.c:44, in operation 3; 2 operations acknowledged", and the place."""
    point = subject.space.points[cause.state.point]
    event = int(point.event) if cause.moment is None else cause.moment
    here = None if event >= len(subject.trace.events) else subject.provenance.of(event)
    words = just_before(subject, event)
    if point.begun > point.acked:
        words += f", in operation {point.begun}"
    last = subject.space.points[len(subject.space.points) - 1]
    promised = [f"{count(int(point.acked), 'operation')} acknowledged"] if last.begun or point.acked else []
    promised += [f"{count(int(point.stdout_bytes), 'byte')} printed"] if last.stdout_bytes else []
    return "; ".join([words, *promised]), here


def just_before(subject: Subject, event: int) -> str:
    """ "before the fence at hash.c:44"."""
    if event >= len(subject.trace.events):
        return "at the end of the run"
    return f"before {event_words(subject, event)}{at_line(subject.provenance.of(event))}"


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
        Kind.UNLINK: "the file is deleted",
        Kind.RENAME: "the file is renamed",
        Kind.OUTPUT: "output is printed",
        Kind.ALLOCATE: "the allocation",
        Kind.FAULT: "a call is made to fail",
        **dict.fromkeys(NAME_KINDS, "a name changes"),
    }
    return names.get(Kind(kind), "the next event")


def _promise(point: CrashPoint, since: int | None) -> str:
    if since is not None and point.acked > since:
        return f"operation {point.acked} was acknowledged"
    return "later output was printed"


def _offset(subject: Subject, piece: int) -> str:
    return hex(subject.graph.piece(piece).offset)
