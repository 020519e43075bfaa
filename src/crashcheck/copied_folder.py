"""Do to a folder what a recorded command did to a copy of it: the same files in place, with their links and owners.

Which file is which follows from the recorded calls, not from paths: a file that was renamed is renamed, one that was
written is written in place, and only what the command created is new.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

from crashcheck.analyzer.trace.calls import Names, name_events, paths_by_inode
from crashcheck.analyzer.trace.reader import read
from crashcheck.errors import CrashcheckError
from crashcheck.runtime import sparse

Inodes = Mapping[str, int]  # of each path


def apply_changes(first: Path, final: Path, folder: Path, trace: Path) -> None:
    """`folder` was like `first`; its copy `final` shows what the command did, and `trace` by which calls.

    Raises CrashcheckError: try-apply.
    """
    before, after = _followed(first, final, trace)
    try:
        _Folder(first, final, folder, before, after).change()
    except OSError as error:
        raise CrashcheckError(
            "try-apply",
            f"{folder} could not be made what the command made of its copy: {error.strerror}: {error.filename}",
            f"The copy is {final}",
        ) from error


def _followed(first: Path, final: Path, trace: Path) -> tuple[Inodes, Inodes]:
    """The inodes at first and in the end, by the trace; what is there that it does not account for has a new one."""
    before: dict[str, int] = {}
    known: dict[str, int] = {}
    with contextlib.suppress(CrashcheckError):
        recorded = read(trace)
        names = Names.first(recorded)
        before = names.paths()
        for call in name_events(recorded):
            names.apply(call)
        known = names.paths()
    if not before:  # no trace: a path is one file, unless it has become another link, or of another kind
        before = {path: number for number, path in enumerate(_below(first), 1)}
        known = {path: i for path, i in before.items() if _kept(first / path, final / path)}
    after: dict[str, int] = {}
    unknown: dict[int, int] = {}  # numbers of our own, below 0
    for path in _below(final):
        number = (final / path).lstat().st_ino
        after[path] = known.get(path) or unknown.setdefault(number, -1 - len(unknown))
    return before, after


def _below(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


def _kept(was: Path, now: Path) -> bool:
    same = _kind(was) == _kind(now)
    return same and (not was.is_symlink() or os.readlink(was) == os.readlink(now))


def _changed(one: os.stat_result, other: os.stat_result) -> bool:
    return (one.st_uid, one.st_gid, one.st_mtime_ns) != (other.st_uid, other.st_gid, other.st_mtime_ns)


def _kind(path: Path) -> int:
    return stat.S_IFMT(path.lstat().st_mode) if path.is_symlink() or path.exists() else 0


class _Folder:
    def __init__(self, first: Path, final: Path, folder: Path, before: Inodes, after: Inodes) -> None:
        self._first, self._final, self._folder = first, final, folder
        self._before, self._after = before, after

    def change(self) -> None:
        """Files first, each where it is; then names, by way of a folder of our own; then folders."""
        old, new = (paths_by_inode(dict(sorted(inodes.items()))) for inodes in (self._before, self._after))
        for inode in sorted(old.keys() & new.keys()):
            was, now = old[inode][0], new[inode][0]
            if stat.S_ISREG(_kind(self._final / now)):
                self._update(self._folder / was, self._first / was, self._final / now)
        with tempfile.TemporaryDirectory(prefix=".crashcheck-", dir=self._folder) as aside:
            moved = {}
            for inode in sorted(old.keys() | new.keys()):
                kept = self._set_aside(Path(aside) / str(inode), old.get(inode, []), new.get(inode, []))
                if kept is not None:
                    moved[inode] = kept
            self._change_folders()
            for inode, kept in moved.items():
                self._give_names(kept, [path for path in new[inode] if self._before.get(path) != inode])
        for path in sorted(self._after, reverse=True):
            if stat.S_ISDIR(_kind(self._final / path)) and self._after[path] != self._before.get(path):
                self._attributes(self._final / path, self._folder / path)

    def _change_folders(self) -> None:
        """Remove and make folders, while no file has a name that it gains."""
        for path in sorted(self._before, reverse=True):
            if stat.S_ISDIR(_kind(self._folder / path)) and not stat.S_ISDIR(_kind(self._final / path)):
                with contextlib.suppress(OSError):  # something else may be in it by now
                    (self._folder / path).rmdir()
        for path in sorted(self._after):
            if stat.S_ISDIR(_kind(self._final / path)):
                (self._folder / path).mkdir(exist_ok=True)

    def _give_names(self, kept: Path, gained: list[str]) -> None:
        for path in gained[:-1]:
            again = kept.with_name(f"{kept.name}-again")
            os.link(kept, again, follow_symlinks=False)
            again.replace(self._folder / path)
        kept.replace(self._folder / gained[-1])

    def _update(self, target: Path, was: Path, now: Path) -> None:
        """Content, mode and owner of a file that was there at first."""
        if not was.is_file() or not target.is_file():
            return
        mode = stat.S_IMODE(now.stat().st_mode)
        if not sparse.equal_files(was, now):
            if not os.access(target, os.R_OK | os.W_OK):
                target.chmod(0o600)
            read, write = os.open(now, os.O_RDONLY | os.O_CLOEXEC), os.open(target, os.O_RDWR | os.O_CLOEXEC)
            try:
                os.ftruncate(write, 0)
                os.ftruncate(write, os.fstat(read).st_size)
                for low, high in sparse.extents(read, 0, os.fstat(read).st_size):
                    sparse.copy_range(read, write, low, high, skip_zeros=True)
            finally:
                os.close(read)
                os.close(write)
            self._attributes(now, target)
        elif stat.S_IMODE(was.stat().st_mode) != mode or _changed(target.stat(), now.stat()):
            self._attributes(now, target)

    def _set_aside(self, kept: Path, old: list[str], new: list[str]) -> Path | None:
        """Take away the names that a file loses; if it gets others, it is at `kept` until then."""
        source = self._final / new[0] if new else None
        if source is not None and stat.S_ISDIR(_kind(source)):
            return None
        lost = [self._folder / path for path in old if path not in new]
        lost = [path for path in lost if not stat.S_ISDIR(_kind(path))]
        gains = [path for path in new if path not in old]
        if gains and not old:
            assert source is not None
            if not self._copy(source, kept):
                return None
        elif gains and lost and _kind(lost[0]):
            lost.pop(0).rename(kept)
        elif gains and _kind(self._folder / old[0]):
            os.link(self._folder / old[0], kept, follow_symlinks=False)
        for path in lost:
            later = self._final / path.relative_to(self._folder)
            if stat.S_IFMT(_kind(later)) in (0, stat.S_IFDIR):  # else another file takes the name
                path.unlink(missing_ok=True)
        return kept if gains and _kind(kept) else None

    def _copy(self, source: Path, target: Path) -> bool:
        """Whether it is something that can be copied."""
        kind = _kind(source)
        if kind == stat.S_IFLNK:
            target.symlink_to(os.readlink(source))
        elif kind == stat.S_IFREG:
            sparse.copy_file(source, target)
        elif kind == stat.S_IFIFO:
            os.mkfifo(target)
        else:
            return False
        self._attributes(source, target, new=True)
        return True

    def _attributes(self, source: Path, target: Path, new: bool = False) -> None:
        wanted, present = source.lstat(), target.lstat()
        if (new or os.geteuid() == 0) and (wanted.st_uid, wanted.st_gid) != (present.st_uid, present.st_gid):
            with contextlib.suppress(PermissionError):  # only root gives files away
                os.chown(target, wanted.st_uid, wanted.st_gid, follow_symlinks=False)
        shutil.copystat(source, target, follow_symlinks=False)
