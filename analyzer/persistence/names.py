"""Names of files as updates: which entries of directories each call changed, and what a file's path was at a moment."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field

from crashcheck.analyzer.persistence.shown_names import ShownNames
from crashcheck.analyzer.trace.calls import (
    Create,
    Link,
    MakeFolder,
    NameEvent,
    Names,
    RemoveFolder,
    Rename,
    RenameExchange,
    Symlink,
    Unlink,
    name_events,
)
from crashcheck.analyzer.trace.reader import ROOT, Trace

Slot = tuple[int, str]  # a directory's inode, and a name in it
REMOVED = 0  # instead of an inode
OUTSIDE = 0  # instead of a directory
RENAME, EXCHANGE, REMOVAL, FILE = "rename", "exchange", "removal", "file"
_WHAT: Mapping[type[NameEvent], str] = {
    Rename: RENAME,
    RenameExchange: EXCHANGE,
    Unlink: REMOVAL,
    RemoveFolder: REMOVAL,
    Create: FILE,
    Link: "link",
    MakeFolder: "directory",
    Symlink: "symbolic link",
}


@dataclass(frozen=True, slots=True)
class NameChange:
    """Entries of directories that persist together: each slot, and the inode that it gets (REMOVED: none)."""

    entries: tuple[tuple[Slot, int], ...]
    text: str  # what the call does, as in "the rename of a.tmp to a"
    what: str = ""  # the same as a word: RENAME, EXCHANGE, REMOVAL, or what gets a name, as "directory"
    path: str = ""  # what it names, as reports show it; "" if that is outside of the folder
    to: str = ""  # of a rename or an exchange: the second name


@dataclass(frozen=True, slots=True)
class NameTable:
    """The changes of names of a trace; `offset` of a piece of kind NAME is the place of its change in `changes`."""

    first: dict[Slot, int] = field(default_factory=dict)  # before the run
    changes: tuple[NameChange, ...] = ()
    targets: dict[int, str] = field(default_factory=dict)  # of symbolic links
    paths: dict[int, tuple[list[int], list[str]]] = field(
        default_factory=dict
    )  # of each inode: events, paths from then
    shown: ShownNames | None = None  # what reports call each name

    def shown_path(self, path: str) -> str:
        """A path as reports show it."""
        return self.shown.path(path) if self.shown is not None else path

    def path(self, inode: int, event: int) -> str:
        """A path of an inode just after an event, as reports show it; of one without a name yet its first."""
        return self.shown_path(self.true_path(inode, event))

    def next_path(self, inode: int, event: int) -> str:
        """The path that an inode gets next after an event, as reports show it; empty if it gets none."""
        events, paths = self.paths.get(inode, ([], []))
        at = bisect_right(events, event)
        return self.shown_path(paths[at]) if at < len(paths) else ""

    def is_new(self, inode: int, event: int) -> bool:
        """Whether an inode got its first path in the run, and has no other one just after an event."""
        events, _ = self.paths.get(inode, ([], []))
        return bool(events) and events[0] >= 0 and bisect_right(events, event) <= 1

    def true_path(self, inode: int, event: int) -> str:
        """The same, as the program has it."""
        events, paths = self.paths.get(inode, ([], []))
        return paths[max(bisect_right(events, event) - 1, 0)] if paths else f"file {inode} without a name"


@dataclass(frozen=True, slots=True)
class NameUpdate:
    """One call that changed names, as a model needs it. `change.entries` has each slot that it sets."""

    call: NameEvent
    change: NameChange


def name_updates(trace: Trace) -> tuple[NameTable, list[NameUpdate]]:
    """All calls that changed names inside the folder, in order, and the table with paths but no changes yet."""
    names = Names.first(trace)
    paths: dict[int, tuple[list[int], list[str]]] = {ROOT: ([-1], [""])}
    targets: dict[int, str] = {}
    for path, inode in sorted(names.paths().items()):
        paths.setdefault(inode, ([-1], [path]))
    first = dict(names.entries)
    updates = []

    events_of_names = name_events(trace)
    brought = {
        call.inode: (call.to_folder, call.to_name) if isinstance(call, Rename) else (call.folder, call.name)
        for call in reversed(events_of_names)
        if isinstance(call, MakeFolder) or (isinstance(call, Rename) and call.folder == OUTSIDE)
    }  # where directories are put that come from outside, after the names in them

    def path_of(folder: int, name: str) -> str:
        above = paths[folder][1][-1] if folder in paths else path_of(*brought[folder]) if folder in brought else ""
        return f"{above}/{name}" if above else name

    shown = ShownNames.of(trace)
    for call in events_of_names:
        entries = _entries(call)
        if not entries:
            continue
        here = path_of(call.folder, call.name)
        there = path_of(call.to_folder, call.to_name) if isinstance(call, Rename | RenameExchange) else ""
        shown_as = shown.path(here), shown.path(there)
        change = NameChange(entries, _text(call, *shown_as), _WHAT[type(call)], *shown_as)
        updates.append(NameUpdate(call, change))
        if isinstance(call, Symlink):
            targets[call.inode] = call.target
        named = [(call.inode, there if there and call.to_folder else here)]  # type: ignore[attr-defined]
        if isinstance(call, RenameExchange):
            named.append((call.other, here))
        if not isinstance(call, Unlink | RemoveFolder):
            for inode, path in named:
                events, known = paths.setdefault(inode, ([], []))
                events.append(call.event)
                known.append(path)
    return NameTable(first, (), targets, paths, shown), updates


def _entries(call: NameEvent) -> tuple[tuple[Slot, int], ...]:
    """What the call sets inside the folder; of a rename the new name first."""
    here = (call.folder, call.name)
    match call:
        case Rename():
            out = [((call.to_folder, call.to_name), call.inode), (here, REMOVED)]
        case RenameExchange():
            out = [((call.to_folder, call.to_name), call.inode), (here, call.other)]
        case Unlink() | RemoveFolder():
            out = [(here, REMOVED)]
        case _:
            out = [(here, call.inode)]
    return tuple((slot, inode) for slot, inode in out if slot[0] != OUTSIDE)


def _text(call: NameEvent, here: str, there: str) -> str:
    what = _WHAT[type(call)]
    if what == RENAME:
        return f"the rename of {here or 'a file elsewhere'} to {there or 'elsewhere'}"
    if what == EXCHANGE:
        return f"the exchange of {here} and {there}"
    if what == REMOVAL:
        return f"the removal of {here}"
    return f"the creation of {here}" if what == FILE else f"the {what} {here}"
