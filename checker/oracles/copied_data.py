"""Copies of lost data: other files may hold what one lacks, as a journal, a log or a backup does.

A file that was synced may be any of them. One that was not may hold what was overwritten, if the run wrote it there
before, as the journal of a program does that never syncs. That it holds the new data is no excuse: two files may have
been overwritten with the same data.
"""

from __future__ import annotations

from collections.abc import Iterator

from crashcheck.checker.images.folder_content import FolderContent, Paths
from crashcheck.checker.images.sparse_bytes import SparseBytes
from crashcheck.checker.oracles.versions import Versions
from crashcheck.checker.states.space import CrashState
from crashcheck.runtime.trace_format import Kind

_CHUNK = 64  # bytes that a log holds in one piece
_FEW = 8  # fewer bytes are in many files by chance
_TRIED = 64  # pieces of a file, spread evenly, so that large files take seconds at most
_PROBES = 4  # lost pieces of which a journal that is not synced was given some
_REMEMBERED = 50_000  # answers

Version = tuple[int, int]  # a file, before an event


class CopiedData:
    """Looks for what files lack in crash states, in other files that the run wrote."""

    def __init__(self, content: FolderContent, versions: Versions) -> None:
        self._content, self._versions = content, versions
        self._known: dict[tuple[bytes, ...], bool] = {}
        self._probes: dict[bytes, tuple[bytes, ...]] = {}
        self._writers: dict[tuple[bytes, ...], dict[int, int]] = {}

    def logs(self, crash: int, paths: Paths, inode: int) -> list[int]:
        """The other files of a state that were synced once."""
        others = self._versions.changes.keys() & set(paths.values()) - {inode}
        return [other for other in sorted(others) if self._versions.was_synced(other, crash)]

    def held_by(self, state: CrashState, inode: int, paths: Paths, version: Version, logs: list[int]) -> bool:
        """Whether logs, or copies of what was overwritten, hold what a file lacks of a version. It may have no name."""
        present = set(paths.values())
        there = inode in present
        own = b"%d %d %d " % (inode if there else 0, *version)
        own += self._content.key(state, inode) if there else b""
        overwritten = self._overwritten(version, inode, self._content.space.moment(state.point))
        if overwritten is not None:
            copies = self._copies(state, inode if there else None, version, own, overwritten)
            logs = [*logs, *sorted(present.intersection(copies) - {inode, *logs})]
        if not logs:
            return False
        asked = own, *(b"%d " % log + self._content.key(state, log) for log in logs)
        known = self._known.get(asked)
        if known is None:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            held, wanted = self._both(state, inode if there else None, version)
            known = self._known[asked] = in_logs(held, wanted, [self._content.bytes_of(state, log) for log in logs])
        return known

    def _both(self, state: CrashState, inode: int | None, version: Version) -> tuple[SparseBytes, SparseBytes]:
        """What a file holds in a state, and what it held before."""
        held = self._content.bytes_of(state, inode) if inode is not None else SparseBytes()
        return held, self._content.bytes_issued(version[1], version[0])

    def _overwritten(self, version: Version, inode: int, crash: int) -> int | None:
        """The event of the first change of a file after a version, None if that is not before a crash.

        Of another file's version the name went to this one then.
        """
        if version[0] != inode:
            return version[1]
        changes = self._versions.changes[inode]
        after = int(changes.searchsorted(version[1]))
        return int(changes[after]) if after < len(changes) and changes[after] < crash else None

    def _copies(
        self, state: CrashState, inode: int | None, version: Version, own: bytes, overwritten: int
    ) -> list[int]:
        """The files that were given parts of what a file lacks, before that was overwritten. `own`: of its content."""
        probes = self._probes.get(own)
        if probes is None:
            if len(self._probes) >= _REMEMBERED:
                self._probes.clear()
            held, wanted = self._both(state, inode, version)
            probes = self._probes[own] = _halves(_lost(held, wanted))
        if probes not in self._writers:
            self._writers[probes] = self._find_writers(probes)
        return [file for file, event in self._writers[probes].items() if event < overwritten and file != version[0]]

    def _find_writers(self, probes: tuple[bytes, ...]) -> dict[int, int]:
        """The files that were given some bytes, and by which event first."""
        found = {}
        for file in self._versions.changes:
            event = next((event for event, data in self._written(file) if any(probe in data for probe in probes)), None)
            if event is not None:
                found[file] = event
        return found

    def _written(self, inode: int) -> Iterator[tuple[int, bytes]]:
        """What the run wrote to a file, by event, each write with the end of the one that it joins."""
        trace, end, last = self._content.graph.trace, -1, b""
        for event in self._versions.changes[inode].tolist():
            row = trace.events[event]
            if int(row["kind"]) not in (Kind.STORE, Kind.WRITE, Kind.CONTENT):
                continue
            data, offset = trace.data(event), int(row["offset"])
            joined = last + data if offset == end else data
            yield event, joined
            end, last = offset + len(data), joined[-_CHUNK:]


def _lost(held: SparseBytes, wanted: SparseBytes) -> Iterator[bytes]:
    """The pieces of some content that a file lacks; all of it if it is short."""
    if wanted.size < _CHUNK:
        return iter([wanted.read(0, wanted.size)])
    return (piece for low, piece in wanted.pieces(_CHUNK) if held.read(low, low + _CHUNK) != piece)


def _halves(pieces: Iterator[bytes]) -> tuple[bytes, ...]:
    """Halves of the first pieces: where one was written in two parts, one half is in a part."""
    chosen = [piece for _, piece in zip(range(_PROBES), pieces, strict=False)]
    whole = [piece for piece in chosen if len(piece) < _CHUNK]
    halves = (half for piece in chosen for half in (piece[: _CHUNK // 2], piece[_CHUNK // 2 :]))
    return tuple(part for part in whole or halves if part.strip(b"\0"))


def in_logs(held: SparseBytes, wanted: SparseBytes, logs: list[SparseBytes]) -> bool:
    """Whether what a file lacks is in some log, in pieces of some length; few bytes would be in most files.

    Of a file that is shorter the log has to be a copy.
    """
    if wanted.size < _CHUNK:
        return any(log.size == wanted.size and log.digest() == wanted.digest() for log in logs)
    searched = [_Searched(log) for log in logs]
    return all(any(log.has(piece) for log in searched) for piece in _lost(held, wanted))


def share(data: SparseBytes, other: SparseBytes) -> bool:
    """Whether some piece of the data is in another file, or all of few bytes; of many pieces some are tried."""
    if data.size < _FEW:
        return data.size > 0 and data.size == other.size and data.digest() == other.digest()
    step = max(_CHUNK, data.size // _TRIED)
    places = (min(low, max(data.size - _CHUNK, 0)) for low in range(0, data.size, step))
    searched = _Searched(other)
    return any(searched.has(chunk) for low in places if (chunk := data.read(low, low + _CHUNK)).strip(b"\0"))


class _Searched:
    """The bytes of a log, in which pieces are looked for from where the last one was: most follow one another."""

    def __init__(self, log: SparseBytes) -> None:
        self._runs = list(log.runs(_CHUNK))
        self._at = 0, 0  # a run, and a place in it

    def has(self, chunk: bytes) -> bool:
        number, at = self._at
        for place in [*range(number, len(self._runs)), *range(min(number + 1, len(self._runs)))]:
            found = self._runs[place].find(chunk, at)
            if found >= 0:
                self._at = place, found + _CHUNK
                return True
            at = 0
        return False
