"""Copies of lost data: files that were synced may hold what another one lacks, as a journal or a log does."""

from __future__ import annotations

from crashcheck.checker.images.folder_content import FolderContent, Paths
from crashcheck.checker.images.sparse_bytes import SparseBytes
from crashcheck.checker.oracles.versions import Versions
from crashcheck.checker.states.space import CrashState

_CHUNK = 64  # bytes that a log holds in one piece
_TRIED = 64  # pieces of a file, spread evenly, so that large files take seconds at most
_REMEMBERED = 50_000  # answers


class SyncedCopies:
    """Looks for what files lack in crash states, in other files that were synced before."""

    def __init__(self, content: FolderContent, versions: Versions) -> None:
        self._content, self._versions = content, versions
        self._known: dict[tuple[bytes, ...], bool] = {}

    def logs(self, crash: int, paths: Paths, inode: int) -> list[int]:
        """The other files of a state that were synced once."""
        others = self._versions.changes.keys() & set(paths.values()) - {inode}
        return [other for other in sorted(others) if self._versions.was_synced(other, crash)]

    def held_by(self, state: CrashState, inode: int, paths: Paths, version: tuple[int, int], logs: list[int]) -> bool:
        """Whether logs hold what a file, which may have no name, lacks of a version: a file before an event."""
        if not logs:
            return False
        there = inode in paths.values()
        keys = [b"%d " % file + self._content.key(state, file) for file in (*([inode] if there else []), *logs)]
        asked = b"%d %d %d" % (inode if there else 0, *version), *keys
        known = self._known.get(asked)
        if known is None:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            held = self._content.bytes_of(state, inode) if there else SparseBytes()
            wanted = self._content.bytes_issued(version[1], version[0])
            known = self._known[asked] = in_logs(held, wanted, [self._content.bytes_of(state, log) for log in logs])
        return known


def in_logs(held: SparseBytes, wanted: SparseBytes, logs: list[SparseBytes]) -> bool:
    """Whether what a file lacks is in some log, in pieces of some length; few bytes would be in most files.

    Of a file that is shorter the log has to be a copy.
    """
    if wanted.size < _CHUNK:
        return any(log.size == wanted.size and log.digest() == wanted.digest() for log in logs)
    searched = [_Searched(log) for log in logs]
    for low, chunk in wanted.pieces(_CHUNK):
        if held.read(low, low + _CHUNK) != chunk and not any(log.has(chunk) for log in searched):
            return False
    return True


def share(data: SparseBytes, other: SparseBytes) -> bool:
    """Whether some piece of the data, or all of few bytes, is in another file; of many pieces some are tried."""
    step = max(_CHUNK, data.size // _TRIED)
    chunks = (data.read(low, low + _CHUNK) for low in range(0, data.size, step))
    searched = _Searched(other)
    return any(searched.has(chunk) for chunk in chunks if chunk.strip(b"\0"))


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
