"""What a crash does to the files of a program, in words of somebody who writes files: which file, how, and where.

Sentences about recorded system calls. Each names what the failing state holds, read from that state; where the two
changes of a cause do not show the harm, it names them, and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from crashcheck.analyzer.persistence.names import EXCHANGE, FILE, REMOVAL, REMOVED, RENAME, NameChange
from crashcheck.analyzer.persistence.pieces import DATA, NAME, SIZE
from crashcheck.analyzer.persistence.shown_names import ShownNames
from crashcheck.checker.findings.cause import Cause
from crashcheck.checker.images.folder_content import FolderContent
from crashcheck.checker.images.sparse_bytes import SparseBytes
from crashcheck.checker.oracles.snapshot import judged_by_snapshots
from crashcheck.checker.results import FindingKind, Location, Outcome
from crashcheck.checker.subject import Subject
from crashcheck.runtime.trace_format import Kind, OutputKind, WriteFlag
from crashcheck.source import spoken_line

_DEATHS = {Outcome.TIMEOUT: "makes the check hang", Outcome.SIGNAL: "kills the check"}
_PIECE = 4096  # bytes that are compared at a time
_LONGEST = 40  # characters of what was printed
_SHOWN_AS = {
    OutputKind.PIPE: "written to a pipe",
    OutputKind.SOCKET: "sent",
    OutputKind.NAME: "renamed or removed elsewhere",
}
MISSING, REPLACED, EMPTY, SHORT, ZEROS, SOME_ZEROS, PART = (
    "be missing",
    "be the old one",
    "be empty",
    "be cut short",
    "hold nothing but zeros",
    "hold zeros instead of some of its data",
    "lack some of its bytes",
)


@dataclass(frozen=True, eq=False)
class FileChange:
    """One of the two changes of a cause: what was called, on which file, and where in the program."""

    subject: Subject
    piece: int
    depth: int = 0  # which caller is named instead of the place of the call itself

    @cached_property
    def row(self) -> int:
        return self.subject.graph.whole(self.piece)

    @property
    def kind(self) -> int:
        return int(self.subject.graph.kind[self.row])

    @property
    def event(self) -> int:
        return int(self.subject.graph.event[self.row])

    @property
    def file(self) -> int:
        """The inode whose content or name changes."""
        return int(self.subject.graph.file[self.row])

    @property
    def path(self) -> str:
        return _quoted(self.subject.path_of(self.piece))

    @property
    def named(self) -> NameChange:
        """Of a change of names: which."""
        return self.subject.graph.name_change(self.row)

    @property
    def removes(self) -> bool:
        return self.kind == NAME and self.named.what == REMOVAL

    @property
    def creates(self) -> bool:
        """Whether it makes a file."""
        return self.kind == NAME and self.named.what == FILE

    @property
    def sizes(self) -> tuple[int, int]:
        """Of a change of a size: before and after."""
        return int(self.subject.graph.old_size[self.row]), int(self.subject.graph.offset[self.row])

    @property
    def cuts(self) -> bool:
        return self.kind == SIZE and self.sizes[1] < self.sizes[0]

    @cached_property
    def location(self) -> Location | None:
        here = self.subject.provenance.of(self.event)
        return here if here is not None and here.line else None

    @property
    def named_place(self) -> Location | None:
        here = self.location
        return here.stack[self.depth - 1].location if here is not None and self.depth else here

    @property
    def line(self) -> str:
        """ "save.c:2"; "" where it is not known."""
        here = self.named_place
        return spoken_line(here.file, here.line) if here is not None else ""

    @property
    def who(self) -> str:
        """ "`save` (save.c:2)"; "" where no line is known."""
        here, line = self.named_place, self.line
        if here is None:
            return ""
        if here.called_from is not None:
            line += f", called from {spoken_line(here.called_from.file, here.called_from.line)}"
        return f"`{here.function}` ({line})" if here.function and not here.function.startswith("<") else line

    @property
    def at(self) -> str:
        """ " (`save`, save.c:2)"; "" where no line is known."""
        by_then = "before " if self.compared else ""
        return f" ({by_then}{self.who.replace('` (', '`, ').removesuffix(')')})" if self.who else ""

    @property
    def what(self) -> str:
        """ "the rename of `a` to `b`", "what was appended to `f`"."""
        here = self.location
        if here is not None and here.name and int(self.subject.trace.events["kind"][self.event]) == Kind.STORE:
            return f"`{here.name}`"
        if self.kind == NAME:
            return _of_name(self.named)
        if self.cuts:
            return f"the emptying of {self.path}" if not self.sizes[1] else f"the shortening of {self.path}"
        if self.kind == SIZE and int(self.subject.trace.events["kind"][self.event]) == Kind.TRUNCATE:
            return f"the extension of {self.path}"
        return f"what was {self.written} {'in' if self.compared else 'to'} {self.path}"

    @cached_property
    def compared(self) -> bool:
        """Whether it was stored through a mapping at some time before the call at its place."""
        return self.subject.was_compared(self.event)

    @property
    def written(self) -> str:
        """ "appended", "stored" or "written", as what a new file gets at first, perhaps by several calls."""
        if self.compared:
            return "stored"
        trace = self.subject.trace
        appends = int(trace.events["flags"][self.event]) & WriteFlag.APPEND or trace.inodes[self.file].existed
        return "appended" if self.kind == SIZE and self.sizes[0] > 0 and appends else "written"

    @property
    def acts(self) -> bool:
        """Whether a function of the program is known to do it."""
        return self.who.startswith("`") and not self.compared

    def done(self, verb: str, thing: str, rest: str = "", to: str = "") -> str:
        """ "`save` (save.c:2) empties it", or "it is emptied" where no line is known."""
        active, passive = _VERBS[verb]
        if self.acts:
            return f"{self.who} {active} {thing}{to}{rest}"
        at = f" {'before' if self.compared else 'at'} {self.who}" if self.who else ""
        return f"{thing} is {passive}{to}{at}{rest}"


_VERBS = {
    "create": ("creates", "created"),
    "empty": ("empties", "emptied"),
    "extend": ("extends", "extended"),
    "remove": ("removes", "removed"),
    "rename": ("renames", "renamed"),
    "write": ("writes", "written"),
}


class _State:
    """What a failing state holds."""

    def __init__(self, subject: Subject, cause: Cause) -> None:
        assert isinstance(subject.content, FolderContent)
        self.subject, self._content, self._state = subject, subject.content, cause.state
        self.crash = subject.space.moment(cause.state.point)
        self.paths = subject.content.paths(cause.state)
        self._names = subject.graph.names

    def has(self, path: str) -> bool:
        """Whether a name, as reports show it, is there."""
        return any(self._names.shown_path(there) == path for there in self.paths)

    def holds(self, path: str, inode: int) -> bool:
        """Whether a name, as reports show it, is that of a file there."""
        return any(own == inode and self._names.shown_path(there) == path for there, own in self.paths.items())

    def bytes(self, inode: int) -> SparseBytes:
        return self._content.bytes_of(self._state, inode)

    def issued(self, inode: int) -> SparseBytes:
        """What was written by then, with nothing lost."""
        return self._content.bytes_issued(self.crash, inode)

    def condition(self, lost: FileChange) -> str:
        """What is wrong with the file of a lost change, compared with what was written by then; "" if nothing is."""
        name = lost.named.to or lost.named.path if lost.kind == NAME else self._names.path(lost.file, self.crash)
        if lost.file not in self.paths.values() or (lost.kind == NAME and not self.holds(name, lost.file)):
            return "" if lost.removes else REPLACED if self.has(name) else MISSING
        if not self._content.is_file(lost.file):
            return ""
        held, wanted = self.bytes(lost.file), self.issued(lost.file)
        if not held.size and wanted.size:
            return EMPTY
        if held.size < wanted.size:
            return SHORT
        if not held.lacks(wanted):
            return ""
        if int(held.counts()[0]) == held.size:
            return ZEROS
        return SOME_ZEROS if _is_zeroed(held, wanted) else PART

    def name_of(self, lost: FileChange) -> str:
        """What `condition` is about, in backticks."""
        if lost.kind == NAME:
            return _quoted(lost.named.to or lost.named.path)
        there = next((path for path, own in self.paths.items() if own == lost.file), None)
        return _quoted(self._names.path(lost.file, self.crash) if there is None else self._names.shown_path(there))

    def is_zeros(self, inode: int) -> bool:
        """Whether a file is not empty, and holds nothing else."""
        held = self.bytes(inode)
        return held.size > 0 and next(held.pieces(_PIECE), None) is None

    def reads_zeros(self, inode: int, low: int, size: int) -> bool:
        """Whether a file is long enough for a range, and holds zeros there."""
        read = self.bytes(inode).read(low, low + size)
        return len(read) == size and not read.strip(b"\0")


def _is_zeroed(held: SparseBytes, wanted: SparseBytes) -> bool:
    """Whether a file has zeros wherever it lacks something."""
    for low, chunk in wanted.pieces(_PIECE):
        there, mine = (np.frombuffer(data, np.uint8) for data in (chunk, held.read(low, low + len(chunk))))
        if bool(((mine != there) & (there != 0) & (mine != 0)).any()):
            return False
    return True


def harm(subject: Subject, cause: Cause) -> str:
    """The sentence of a cause."""
    kept = FileChange(subject, cause.kept) if cause.kept is not None else None
    lost = FileChange(subject, cause.lost) if cause.lost is not None else None
    if not (cause.complete or cause.prefix):
        return _not_minimised(subject, cause)
    if cause.kind is FindingKind.UNPERSISTED:
        return _after_output(subject, cause, lost)
    state = _State(subject, cause)
    if kept is not None and lost is not None:
        kept, lost = _told_apart(kept, lost)
        shape = _torn if cause.torn else _between if cause.prefix else _out_of_order
        text = shape(cause, state, kept, lost)
        return text if text.endswith(_fails(cause)) else text + _death(cause)
    if kept is not None:
        return f"a crash after {kept.what}{kept.at} {_fails(cause)}"
    return f"a crash before {lost.what}{lost.at} {_fails(cause)}" if lost is not None else f"a crash {_fails(cause)}"


def _told_apart(kept: FileChange, lost: FileChange) -> tuple[FileChange, FileChange]:
    """Two changes at one line, as of a function that makes all calls: named by the first callers that differ."""
    here, there = kept.location, lost.location
    if here is None or there is None or here.point != there.point:
        return kept, lost
    frames = enumerate(zip(here.stack, there.stack, strict=False), 1)
    depth = next((at for at, (mine, its) in frames if mine != its and mine.line and its.line), 0)
    return replace(kept, depth=depth), replace(lost, depth=depth)


def _between(cause: Cause, state: _State, kept: FileChange, lost: FileChange) -> str:
    """Nothing is reordered: the crash is after one change, before the next one."""
    path = kept.path
    if (kept.cuts or kept.creates) and kept.file in state.paths.values() and not state.bytes(kept.file).size:
        then = _before_writing(kept, lost) if lost.kind in (DATA, SIZE) and lost.file == kept.file else ""
        if kept.cuts or then:
            return f"{path} can be empty after a crash: {kept.done('empty' if kept.cuts else 'create', 'it', then)}"
    if kept.removes and not state.has(kept.named.path):
        gone = _quoted(kept.named.path)
        if recreated_path(kept.subject, cause):
            then = f"{_before_writing(kept, lost)} again"
            return f"{gone} can be missing after a crash: {kept.done('remove', 'it', then)}"
        if lost.kind in (DATA, SIZE):
            then = f" before {lost.path} is written{lost.at}"
            return f"{gone} can be gone after a crash, and {lost.path} not complete: {kept.done('remove', gone, then)}"
    if {kept.kind, lost.kind} <= {DATA, SIZE} and kept.file == lost.file:
        if kept.kind == SIZE and state.is_zeros(kept.file):
            return f"{path} can {ZEROS} after a crash: {kept.done('extend', 'it', _before_writing(kept, lost))}"
        if kept.subject.graph.names.is_new(kept.file, kept.event):
            return f"{path} can be incomplete after a crash: {kept.done('write', 'it', ' in parts')}"
        return f"{path} can be half written after a crash: {kept.done('write', 'it', ' in place, in parts')}"
    return f"a crash between {_both(kept, lost)} {_fails(cause)}"


def _before_writing(kept: FileChange, lost: FileChange) -> str:
    """ " before it writes it", " before `put` (save.c:7) writes it": by the same function, or by another."""
    if not kept.acts:
        return " before it is written"
    here, there = kept.named_place, lost.named_place
    other = lost.acts and here is not None and there is not None and here.function != there.function
    return f" before {lost.who if other else 'it'} writes it"


def recreated_path(subject: Subject, cause: Cause) -> str:
    """The path that is removed just before the failing moments and given to another file in them; "" if none is."""
    graph = subject.graph
    if not cause.prefix or cause.kept is None or cause.lost is None:
        return ""
    kept, lost = graph.whole(cause.kept), graph.whole(cause.lost)
    if graph.kind[kept] != NAME:
        return ""
    changes, offsets = graph.names.changes, graph.offset
    gone = {slot for slot, inode in changes[int(offsets[kept])].entries if inode == REMOVED}
    if len(gone) != len(changes[int(offsets[kept])].entries):
        return ""
    later = np.flatnonzero((graph.kind == NAME) & (np.arange(len(graph)) > kept)).tolist()
    given = ((piece, entry) for piece in later for entry in changes[int(offsets[piece])].entries if entry[0] in gone)
    piece, (_, inode) = next(given, (-1, (None, REMOVED)))
    if inode == REMOVED or (piece != lost and int(graph.file[lost]) != inode):
        return ""
    return graph.names.path(inode, int(graph.event[piece]))


def _out_of_order(cause: Cause, state: _State, kept: FileChange, lost: FileChange) -> str:
    """A later change is there, an earlier one is not."""
    if kept.event == lost.event and kept.kind == lost.kind == NAME:
        return _half_renamed(state, kept)
    condition = state.condition(lost)
    if kept.removes and lost.kind != NAME and condition and state.holds(kept.named.path, lost.file):
        then = f" before {lost.path}, which replaces it{_written(kept, lost).removesuffix(',')}, is synced"
        return f"{_quoted(kept.named.path)} can {condition} after a crash: {kept.done('remove', 'it', then)}"
    if kept.removes and not state.has(kept.named.path) and condition:
        gone, other = _quoted(kept.named.path), state.name_of(lost)
        unsynced = f"the folder of {_quoted(lost.named.to or lost.named.path)}" if lost.kind == NAME else lost.path
        then = f" before {unsynced}{_written(kept, lost)} is synced"
        return f"{other} can {condition} after a crash while {gone} is gone: {kept.done('remove', gone, then)}"
    renamed = kept.kind == NAME and kept.named.what == RENAME and state.holds(kept.named.to, kept.file)
    if renamed and lost.kind != NAME and condition:
        new, old = _quoted(kept.named.to), _quoted(kept.named.path) if kept.named.path else "another file"
        other, beside, unsynced = new, "", f"its data{_written(kept, lost)} are"
        if kept.file != lost.file:
            other = state.name_of(lost)
            beside, unsynced = f" while {new} is in place", f"{other}{_written(kept, lost)} is"
        then = kept.done("rename", old, f" before {unsynced} synced", f" to {new}")
        return f"{other} can {condition} after a crash{beside}: {then}"
    if kept.kind == SIZE and lost.kind == DATA and kept.file == lost.file and not kept.cuts:
        return _size_alone(state, kept, lost)
    if kept.file == lost.file and kept.what.startswith("what was") and lost.what.startswith("what was"):
        if lost.compared and lost.event >= state.subject.found_since(kept.event):
            there, gone = (
                f"what was stored at {state.subject.graph.piece(one.piece).offset:#x}" for one in (kept, lost)
            )
            return f"{lost.path} can lose {gone} in a crash and keep {there}{kept.at}"
        earlier, later = f"what was {lost.written} first{lost.at}", f"what was {kept.written} later{kept.at}"
        return f"{lost.path} can lose {earlier} in a crash and keep {later}"
    if condition and judged_by_snapshots(cause.verdict):
        harm = f"{state.name_of(lost)} can {condition} after a crash"
        return f"{harm}: {lost.what}{lost.at} is not synced before {kept.what}{kept.at}"
    ordered = lost.event < state.subject.found_since(kept.event) and state.subject.is_known_moment(kept.event)
    first = ", which was done first" if ordered else ""
    return f"{kept.what}{kept.at} can survive a crash without {lost.what}{lost.at}{first}"


def _half_renamed(state: _State, kept: FileChange) -> str:
    """Of two names that one call changes one is as it was."""
    old, new = kept.named.path, kept.named.to
    there = {state.has(old), state.has(new)}
    if len(there) > 1:
        return f"a crash in {kept.what}{kept.at} can leave one of the two names as it was"
    harm = "be there" if True in there else "be gone"
    return f"{_quoted(old)} and {_quoted(new)} can both {harm} after a crash: {kept.what} is done in two parts{kept.at}"


def _written(kept: FileChange, lost: FileChange) -> str:
    """ ", written at save.c:7,": where the lost data are from, if that is another line than the one to blame."""
    how = "stored before" if lost.compared else "written at"
    return f", {how} {lost.line}," if lost.kind != NAME and lost.line not in ("", kept.line) else ""


def _size_alone(state: _State, kept: FileChange, lost: FileChange) -> str:
    graph = lost.subject.graph
    zeros = state.reads_zeros(lost.file, int(graph.offset[lost.row]), int(graph.size[lost.row]))
    read = ", which read as zeros" if zeros else ""
    return f"{kept.path} can have its new size after a crash without its new bytes{read}{kept.at}"


def _torn(cause: Cause, state: _State, kept: FileChange, lost: FileChange) -> str:
    """One call changes two things, of which one is there."""
    if kept.kind == SIZE and lost.kind == DATA and not kept.cuts:
        return _size_alone(state, kept, lost)
    if kept.kind == lost.kind == NAME:
        return _half_renamed(state, kept)
    if kept.kind == DATA and lost.kind == SIZE and state.condition(lost) == SHORT:
        return f"{kept.path} can be cut short after a crash: one write to it can end in the middle{kept.at}"
    if {kept.kind, lost.kind} <= {DATA, SIZE} and kept.file == lost.file:
        return f"part of one write to {kept.path} can survive a crash without the rest{kept.at}"
    return f"{kept.what} can survive a crash without {lost.what} by the same call{kept.at}"


def _after_output(subject: Subject, cause: Cause, lost: FileChange | None) -> str:
    """What was lost although the program had reported it as done."""
    reported = report_of(subject, cause)
    if lost is None:
        return f"after {reported} a crash {_fails(cause)}, although everything is on disk"
    state = _State(subject, cause)
    rewritten = lost.cuts and not lost.sizes[1] and state.issued(lost.file).size  # emptied, and written then
    what = f"what was written to {lost.path}" if rewritten else lost.what
    now = state.name_of(lost) if lost.kind in (DATA, SIZE) else ""
    if now and what.endswith(f" {lost.path}") and now != lost.path:  # it was renamed since
        what = f"{what.removesuffix(lost.path)}{now} (as {lost.path})"
    if cause.prefix:
        return f"{what} can be lost in a crash: {reported} before it was done{lost.at}"
    return f"{what} can be lost in a crash although {reported}{lost.at}"


def report_of(subject: Subject, cause: Cause, *, to_come: bool = False) -> str:
    """ "`saved` was printed": the last that the outside world saw before the crash. `to_come`: "`saved` is printed"."""
    last = subject.space.points.last_acknowledging(cause.state.point)
    be = "is" if to_come else "was"
    if last is None:
        return f"its end {be} reported"
    row = subject.trace.events[last]
    if int(row["kind"]) == Kind.MARK_END:
        return f"operation {int(row['aux'])} {'ends' if to_come else 'had ended'}"
    if int(row["kind"]) != Kind.OUTPUT:
        return f"the command {'ends' if to_come else 'had ended well'}"
    how = _SHOWN_AS.get(OutputKind(int(row["aux"])), "printed")
    return f"{_text(subject, subject.trace.data(last)) or 'something'} {be} {how}"


def _text(subject: Subject, data: bytes) -> str:
    """The last line of what was printed, in backticks, equal in all runs; "" if it is no text."""
    shown = ShownNames.of(subject.trace).text(data.decode("utf-8", "replace"))
    lines = [line.strip() for line in shown.splitlines() if line.strip()]
    if not lines or not lines[-1].isprintable() or "\ufffd" in lines[-1] or "`" in lines[-1]:
        return ""
    return _quoted(lines[-1] if len(lines[-1]) <= _LONGEST else f"{lines[-1][: _LONGEST - 1]}…")


def _not_minimised(subject: Subject, cause: Cause) -> str:
    """What was run and failed, without a claim which of the lost changes is why."""
    lost = subject.space.lost(cause.state)
    first = FileChange(subject, subject.first_of(lost))
    others = len(lost) - 1
    more = f" and {others} other change{'s' * (others > 1)}" if others else ""
    return f"a crash that loses {first.what}{first.at}{more} {_fails(cause)}"


def _both(kept: FileChange, lost: FileChange) -> str:
    if kept.at == lost.at:
        return f"{kept.what} and {lost.what}{lost.at}"
    return f"{kept.what}{kept.at} and {lost.what}{lost.at}"


def _death(cause: Cause) -> str:
    return f", which {_DEATHS[cause.verdict.outcome]}" if cause.verdict.outcome in _DEATHS else ""


def _fails(cause: Cause) -> str:
    """What a state does to the check, or to the files where there is none."""
    if judged_by_snapshots(cause.verdict):
        return "loses data"
    return _DEATHS.get(cause.verdict.outcome, "leaves files that fail the check")


def _of_name(change: NameChange) -> str:
    path, to = _quoted(change.path) if change.path else "a file elsewhere", _quoted(change.to)
    if change.what == RENAME:
        return f"the rename of {path} to {to if change.to else 'another place'}"
    if change.what == EXCHANGE:
        return f"the exchange of {path} and {to}"
    if change.what == REMOVAL:
        return f"the removal of {path}"
    return f"the new {change.what} {path}"


def _quoted(path: str) -> str:
    return f"`{path}`"
