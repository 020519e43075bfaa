"""Which sync is missing in a program of system calls: the call and the place, and no edit."""

from __future__ import annotations

from crashcheck.analyzer.persistence.names import REMOVED
from crashcheck.analyzer.persistence.pieces import DATA, NAME, SIZE
from crashcheck.analyzer.persistence.sync_intervals import find_syncs
from crashcheck.checker.findings.cause import Cause
from crashcheck.checker.findings.describe import line_of, name_of, named
from crashcheck.checker.findings.file_losses import recreated_path, report_of
from crashcheck.checker.fixes.recipes import recipe
from crashcheck.checker.oracles.snapshot import judged_by_snapshots
from crashcheck.checker.results import Fix
from crashcheck.checker.subject import Subject

_NO_SOURCE = "the program's source is not known"
_NO_DESCRIPTOR = "which descriptor to sync is not known"


def missing_call(subject: Subject, cause: Cause) -> Fix:
    """What would make the lost update durable in time."""
    recreated = recreated_path(subject, cause)
    whole = recipe(subject, cause, replace=True)
    if recreated:
        words = f"write the new content to another file, sync it, and rename it over {recreated}"
        return Fix("atomic", words, recipe=whole)
    order = _other_order(subject, cause)
    if order and cause.kept is not None and not _files(subject, cause.kept):  # a removal
        return Fix("atomic", order, recipe=recipe(subject, cause, replace=False))
    if cause.lost is None or cause.no_sync_helps:
        either = f"{order}; or let recovery accept a crash between the two, or put both into one file"
        words = either if order else _instead(subject, cause)
        return Fix("atomic", f"no sync can help: {words}", recipe=whole if "rename it" in words else ())
    known = subject.place(cause.lost if cause.kept is None else cause.kept) is not None
    no_edit = _NO_DESCRIPTOR if known else _NO_SOURCE
    if _dropped(subject, cause.lost):
        path = subject.path_of(cause.lost)
        text = (
            f"stop where the sync of {path} fails, or write its data again: the kernel may have dropped them, and a "
            "later sync does not bring them back"
        )
        return Fix("sync", text, no_edit=no_edit)
    words = f"add {_sync_of(subject, cause.lost)} before {_due(subject, cause)}"
    return Fix("sync", words, no_edit=no_edit, recipe=recipe(subject, cause, replace=False))


def _due(subject: Subject, cause: Cause) -> str:
    """What the sync has to precede, as in "the rename of a to b at LINE" or "`saved` is printed"."""
    if cause.kept is None:
        return report_of(subject, cause, to_come=True)
    if subject.graph.kind[subject.graph.whole(cause.kept)] == NAME:
        return named(subject, cause.kept)
    here = subject.place(cause.kept)
    if here is None or not here.line or here.variable:
        return named(subject, cause.kept)
    if subject.was_compared(subject.event_of(cause.kept)):
        return f"the store to {name_of(subject, cause.kept)} (before {line_of(here)})"
    return f"the write at {line_of(here)} ({name_of(subject, cause.kept)})"


def _other_order(subject: Subject, cause: Cause) -> str:
    """How to change first what the files need to be right again; "" where it is no change of another file."""
    if not cause.prefix or cause.kept is None or cause.lost is None:
        return ""
    last = cause.lost if cause.until is None else cause.until
    kept_kind, last_kind = (subject.graph.kind[subject.graph.whole(piece)] for piece in (cause.kept, last))
    if kept_kind == last_kind == NAME or _files(subject, cause.kept) & _files(subject, last):
        return ""
    if kept_kind == NAME and _is_inside(subject, last, cause.kept):  # it needs the folder first
        return ""
    if judged_by_snapshots(cause.verdict) and kept_kind != NAME:  # it asks of each file alone, unless one is removed
        return ""
    before = name_of(subject, last) if last_kind == NAME else f"what is written to {subject.path_of(last)}"
    return f"let {name_of(subject, cause.kept)} follow {before}, and an {_sync_of(subject, last)}"


def _is_inside(subject: Subject, piece: int, named: int) -> bool:
    """Whether a piece changes something in the folder that another one names."""
    graph = subject.graph
    folder = graph.name_change(graph.whole(named))
    row = graph.whole(piece)
    path = graph.name_change(row).path if graph.kind[row] == NAME else subject.path_of(piece)
    return path.startswith(f"{folder.to or folder.path}/")


def _files(subject: Subject, piece: int) -> set[int]:
    """The files that a piece is about: of a name, those that get one."""
    graph = subject.graph
    row = graph.whole(piece)
    if graph.kind[row] != NAME:
        return {int(graph.file[row])}
    return {inode for _, inode in graph.name_change(piece).entries if inode != REMOVED}


def _instead(subject: Subject, cause: Cause) -> str:
    """How to change at once what a crash must not leave half changed."""
    graph, names = subject.graph, subject.graph.names
    pieces = [piece for piece in (cause.lost, cause.kept) if piece is not None]
    content = [row for row in (graph.whole(piece) for piece in pieces) if graph.kind[row] != NAME]
    if len(pieces) == 2 and not content:
        return "let recovery accept a crash between the two, or make both below another name and rename that"
    shrinks = any(graph.kind[row] == SIZE and graph.offset[row] < graph.old_size[row] for row in content)
    for row in content:
        inode, event = int(graph.file[row]), int(graph.event[row])
        now, later = names.path(inode, event), names.next_path(inode, event)
        if shrinks or not names.is_new(inode, event):  # what was there before, or renamed to this name, is in use
            continue
        if later not in ("", now):
            return f"{now} is renamed to {later} only when it is complete; recovery must not rely on it before that"
        if _in_use(subject, row):
            return (
                f"let recovery of {now} end at a record that is not complete, as its checksum shows; or give {now} its "
                "name only when it is complete and synced"
            )
        return f"write {now} under another name, sync it, and rename it; or let recovery accept it unfinished"
    if cause.torn and any(graph.kind[row] == SIZE for row in content):
        path = subject.path_of(pieces[0])
        return (
            f"the size of {path} can persist before the bytes that are appended; let recovery end at a record that is "
            "not complete, as its checksum shows"
        )
    alone = judged_by_snapshots(cause.verdict)  # each file is
    if not alone and len({int(graph.file[row]) for row in content}) > 1:
        return "let recovery accept a crash between the two, or put both into one file"
    changes = f"{subject.path_of(pieces[0])} changes in parts; " if cause.torn and pieces else _after(subject, cause)
    return f"{changes}write a new file, sync it, and rename it over the old one"


def _after(subject: Subject, cause: Cause) -> str:
    """That a write in place may have to follow the next one of the same file: a check knows which needs which."""
    if cause.kept is None or cause.lost is None or judged_by_snapshots(cause.verdict):
        return ""
    first, then = (subject.place(piece) for piece in (cause.kept, cause.lost))
    rows = [subject.graph.whole(piece) for piece in (cause.kept, cause.lost)]
    if first is None or then is None or first.point == then.point or (subject.graph.kind[rows] != DATA).any():
        return ""
    return f"let the write at {line_of(first)} follow that at {line_of(then)} and a sync; or "


def _in_use(subject: Subject, row: int) -> bool:
    """Whether something was acknowledged between the first update of a file's content and this one, as of a log."""
    graph, event = subject.graph, int(subject.graph.event[row])
    content = graph.event[(graph.file == graph.file[row]) & (graph.kind != NAME)]
    return subject.acknowledged_between(int(content.min()), subject.point_at(event))


def _dropped(subject: Subject, lost: int) -> bool:
    """Whether a sync that failed covers a lost update of data."""
    graph = subject.graph
    row = graph.whole(lost)
    file, offset, event = int(graph.file[row]), int(graph.offset[row]), int(graph.event[row])
    failed = (sync for sync in find_syncs(subject.trace) if sync.failed and event < sync.end)
    return graph.kind[row] == DATA and any(sync.covers(file, offset) for sync in failed)


def _sync_of(subject: Subject, lost: int) -> str:
    graph = subject.graph
    row = graph.whole(lost)
    if graph.kind[row] != NAME:
        return f"fsync of {subject.path_of(lost)}"
    entries = graph.name_change(row).entries
    event = int(graph.event[row])
    folders = dict.fromkeys(graph.names.path(folder, event) for (folder, _), _ in entries)
    return " and ".join(f"fsync of the directory {folder or '.'}" for folder in folders)
