"""Crash images: a folder that becomes one crash state after another, put back exactly after each check.

A worker owns two copies of the image, both sparse and on tmpfs where there is room: `base`, which
nobody else touches, and `pool`, which the check is given. A state's patches are written into `pool`
in place. Afterwards `pool` is made equal to `base` again, by the cheapest way that is certain:

* The check opened nothing for writing and changed no name (inotify.py): only the state's own
  patches are undone. A file that the state does not have was moved aside, and is moved back.
* Some known files were written, or are other files in the state: those are compared with `base`, data ranges only
  (memcmp), and what differs is copied back. Time stamps are never trusted: a write through a mapping does not move
  them.
* Names, modes or folders changed, or inotify does not work here, or its queue ran over: every file
  of the folder is compared, what is missing is created again and what is extra is removed.
* Any of this fails: the folder is removed and copied from `base` again (plain copy).

Time stamps and extended attributes are not part of an image.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from crashcheck.checker.images.inotify import ChangedPaths, Watch, works
from crashcheck.runtime import sparse

# path relative to the pool, exists, size in bytes, (offset, bytes) writes; a FilePatch as plain data, so that
# a worker process loads no numpy
Patch = tuple[str, bool, int, tuple[tuple[int, bytes], ...]]
Patches = Sequence[Patch]

# Instead of a size, what the path becomes. The bytes of its one write are a symbolic link's target; of a LINK, which is
# another name of a file, a path of that.
FOLDER, SYMLINK, LINK = -1, -2, -3

_SHARED_MEMORY = Path("/dev/shm")
_PREFIX = "crashcheck-images-"
_LOCK = "lock"
_YOUNG_S = 60
_EVERYTHING = ChangedPaths(frozenset(), True)


class ImageFolder:
    """One worker's image: `pool` is a crash state between `apply` and `restore`, else equal to `base`."""

    def __init__(self, first: Path, root: Path) -> None:
        """Copy the first image into `root`, which must be an empty folder of our own."""
        self.first = first
        self.base = root / "base"
        self.pool = root / "pool"
        self._base, self._pool = f"{self.base}/", f"{self.pool}/"  # what the paths in them begin with
        self._beside = root / "aside"
        self._beside.mkdir()
        self._aside: dict[str, str] = {}  # files of the pool that a state does not have, by path, and where they are
        self._last = _Last(_last(first))
        self._moved: set[str] = set()  # paths in which base differs from the first image
        self._renamed = False  # the base may have other names than the first image
        self._patches: Patches = ()
        self._made: set[str] = set()  # files that they make
        self._fds: dict[str, int] = {}  # open base files
        self._maps: dict[str, tuple[int, sparse.Mapping, sparse.Mapping]] = {}  # path -> (pool inode, base, pool)
        self._watch: Watch | None = None
        self._watched = works(root)
        sparse.copy_tree(first, self.base)
        sparse.copy_tree(self.base, self.pool)
        self._rewatch()

    # -- the base moves along the trace

    def reset(self) -> None:
        """Back to the first image."""
        if self._renamed:
            for path in list(self._fds):
                self._forget(path)
            _remove(self.base)
            sparse.copy_tree(self.first, self.base)
            self._moved.clear()
            self._renamed = False
            self._copy_anew()
            return
        for path in sorted(self._moved):
            self._forget(path)
            source, target = self.first / path, self.base / path
            if source.is_file():
                if target.exists():
                    read, write = os.open(source, os.O_RDONLY | os.O_CLOEXEC), os.open(target, os.O_RDWR | os.O_CLOEXEC)
                    try:
                        _equalise_by_reading(read, write)
                    finally:
                        os.close(read)
                        os.close(write)
                else:
                    target.parent.mkdir(parents=True, exist_ok=True)
                    sparse.copy_file(source, target)
            else:
                target.unlink(missing_ok=True)
            self._restore_file(path)
        self._moved.clear()

    def advance(self, patches: Patches) -> None:
        """Make the base, and with it the pool, what is durable at a later crash point."""
        self._renamed |= _change_names(patches)
        new_folder = self._watched and self._makes_folder(patches)
        for path, exists, size, writes in patches:
            self._moved.add(path)
            if not exists or (path in self._fds and os.fstat(self._fds[path]).st_size != size):
                self._forget(path)
            for folder in (self._base, self._pool):
                _put(folder, path, exists, size, writes, self._last)
        if new_folder:
            self._rewatch()

    # -- one state

    def apply(self, patches: Patches) -> None:
        """Turn the pool into a crash state: `patches` are relative to the base."""
        self._patches = patches
        new_folder = self._watched and self._makes_folder(patches)
        seen: set[str] = set()
        for path, exists, size, writes in patches:
            is_aside = not exists and path not in seen and self._set_aside(path)
            if not is_aside and _put(self._pool, path, exists, size, writes, self._last):
                self._made.add(path)
            seen.add(path)
        if new_folder:
            self._rewatch()
        if self._watch is not None:
            self._watch.skip()

    def restore(self) -> None:
        """Make the pool equal to the base again, whatever the check did to it; nobody may have it open any more."""
        try:
            changes = self._watch.changes() if self._watch is not None else _EVERYTHING
            others = (changes.written | _other_files(self._patches)) - self._aside.keys()
            if (
                changes.everything
                or any(size < 0 for _, _, size, _ in self._patches)
                or not all(map(self._is_one_file, others))
            ):
                self._restore_everything()
            else:
                for path in sorted(others):
                    self._restore_file(path)
                others |= self._aside.keys()
                while self._aside:
                    path, name = self._aside.popitem()
                    os.rename(name, self._pool + path)
                self._undo([patch for patch in self._patches if patch[0] not in others])
        except OSError as error:
            if error.errno == errno.ENOSPC:
                raise
            self._copy_anew()
        while self._aside:
            os.unlink(self._aside.popitem()[1])
        self._patches = ()
        self._made.clear()

    def close(self) -> None:
        for path in list(self._fds):
            self._forget(path)
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    # -- putting back

    def _set_aside(self, path: str) -> bool:
        """Move a file of the pool out of it; whether there is none any more."""
        target, name = self._pool + path, f"{self._beside}/{len(self._aside)}"
        try:
            status = os.lstat(target)
        except FileNotFoundError:
            return True
        if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
            return False
        os.rename(target, name)
        self._aside[path] = name
        return True

    def _undo(self, patches: Iterable[Patch]) -> None:
        for path, exists, size, writes in patches:
            target = self._pool + path
            if path in self._made:
                _unlink(target)
                self._remove_extra_folders(path)
                continue
            if not exists:
                self._restore_file(path)
                continue
            base = self._base_fd(path)
            base_size = os.fstat(base).st_size
            fd = os.open(target, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                for offset, data in writes:
                    end = min(offset + len(data), base_size)
                    if end > offset:
                        sparse.write_all(fd, os.pread(base, end - offset, offset), offset)
                if size != base_size:
                    os.ftruncate(fd, base_size)
                    for low, high in sparse.extents(base, min(size, base_size), base_size):
                        sparse.copy_range(base, fd, low, high)
            finally:
                os.close(fd)

    def _makes_folder(self, patches: Patches) -> bool:
        """Whether patches make a folder in the pool, or a file in one that is not there."""
        return any(
            size == FOLDER or ("/" in path and not os.path.isdir(os.path.dirname(self._pool + path)))
            for path, _, size, _ in patches
        )

    def _is_one_file(self, path: str) -> bool:
        """Whether it is a file with one name in the base, or nothing."""
        try:
            status = os.lstat(self._base + path)
        except (FileNotFoundError, NotADirectoryError):
            return True
        return stat.S_ISREG(status.st_mode) and status.st_nlink == 1

    def _restore_file(self, path: str, names: int = 1) -> None:
        """`names`: how many the file has."""
        target = self._pool + path
        try:
            wanted = os.stat(self._base + path)
        except (FileNotFoundError, NotADirectoryError):
            _unlink(target)
            self._remove_extra_folders(path)
            return
        try:
            present = os.lstat(target)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(target), exist_ok=True)
            sparse.copy_file(self.base / path, Path(target))
            return
        if not stat.S_ISREG(present.st_mode) or present.st_nlink != names:
            _remove(Path(target))
            sparse.copy_file(self.base / path, Path(target))
            return
        if stat.S_IMODE(present.st_mode) != stat.S_IMODE(wanted.st_mode):
            os.chmod(target, stat.S_IMODE(wanted.st_mode))
        sparse.keep_owner(target, wanted)
        read = self._base_fd(path)
        fd = os.open(target, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            if present.st_size != wanted.st_size:
                os.ftruncate(fd, wanted.st_size)
            maps = self._mappings(path, read, fd, wanted.st_size, present.st_ino) if wanted.st_size else None
            sparse.equalise(read, fd, maps)
        finally:
            os.close(fd)

    def _restore_everything(self) -> None:
        self._restore_folder("", {})
        self._rewatch()

    def _restore_folder(self, folder: str, linked: dict[int, Path]) -> None:
        """`linked`: in the pool, the first name so far of each file of the base that has several."""
        base, pool = self.base / folder, self.pool / folder
        if pool.is_symlink() or not pool.is_dir():
            _remove(pool)
            pool.mkdir()
            sparse.keep_owner(pool, base.stat())
        os.chmod(pool, stat.S_IMODE(base.stat().st_mode) | stat.S_IRWXU)
        wanted = set(os.listdir(base))
        for name in os.listdir(pool):
            if name not in wanted:
                _remove(pool / name)
        for name in sorted(wanted):
            path = f"{folder}/{name}" if folder else name
            source, target = base / name, pool / name
            if source.is_symlink():
                if not target.is_symlink() or os.readlink(target) != os.readlink(source):
                    _remove(target)
                    target.symlink_to(os.readlink(source))
            elif source.is_dir():
                self._restore_folder(path, linked)
            else:
                self._restore_names(path, linked)
        os.chmod(pool, stat.S_IMODE(base.stat().st_mode))

    def _restore_names(self, path: str, linked: dict[int, Path]) -> None:
        """Restore a file that may have several names; at the first of them its content."""
        wanted, target = os.stat(self.base / path), self.pool / path
        if wanted.st_nlink == 1:
            self._restore_file(path)
        elif wanted.st_ino not in linked:
            if any(target.exists() and target.samefile(other) for other in linked.values()):
                _remove(target)
            self._restore_file(path, wanted.st_nlink)
            linked[wanted.st_ino] = target
        elif target.is_symlink() or not target.exists() or not target.samefile(linked[wanted.st_ino]):
            _remove(target)
            os.link(linked[wanted.st_ino], target)

    def _copy_anew(self) -> None:
        for path in list(self._fds):
            self._forget(path)
        _remove(self.pool)
        sparse.copy_tree(self.base, self.pool)
        self._rewatch()

    def _remove_extra_folders(self, path: str) -> None:
        parent = os.path.dirname(path)
        while parent and not os.path.isdir(self._base + parent):
            os.rmdir(self._pool + parent)
            parent = os.path.dirname(parent)

    # -- what is kept open

    def _base_fd(self, path: str) -> int:
        if path not in self._fds:
            self._fds[path] = os.open(self._base + path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        return self._fds[path]

    def _mappings(
        self, path: str, base: int, pool: int, size: int, inode: int
    ) -> tuple[sparse.Mapping, sparse.Mapping]:
        known = self._maps.get(path)
        if known is not None:
            if known[0] == inode and known[1].size == size:
                return known[1], known[2]
            known[1].close()
            known[2].close()
        made = (inode, sparse.Mapping(base, size), sparse.Mapping(pool, size))
        self._maps[path] = made
        return made[1], made[2]

    def _forget(self, path: str) -> None:
        known = self._maps.pop(path, None)
        if known is not None:
            known[1].close()
            known[2].close()
        fd = self._fds.pop(path, None)
        if fd is not None:
            os.close(fd)

    def _rewatch(self) -> None:
        if not self._watched:
            return
        if self._watch is None:
            self._watch = Watch()
        folders = [os.path.relpath(top, self.pool) for top, _, _ in os.walk(self.pool)]
        self._watch.cover(self.pool, ["" if folder == "." else folder for folder in folders])


def _other_files(patches: Patches) -> set[str]:
    """The paths that patches remove, or give to a file that is made from nothing."""
    many = Counter(path for path, _, _, _ in patches)
    return {path for path, exists, _, _ in patches if not exists or many[path] > 1}


def _change_names(patches: Patches) -> bool:
    """Whether directories or links come or go, or a name becomes that of another file."""
    paths = [path for path, _, _, _ in patches]
    return len(set(paths)) < len(paths) or any(size < 0 for _, _, size, _ in patches)


def _put(folder: str, path: str, exists: bool, size: int, writes: Sequence[tuple[int, bytes]], last: _Last) -> bool:
    """Make a path what a patch describes: nothing, a directory, a link or a file. `folder` ends with a slash.

    `last`: what the workload left, whose owners and modes new files get. Returns whether it made a file from nothing.
    """
    target = folder + path
    if exists and size >= 0:
        return _write_patch(target, size, writes, path, last)
    if not exists:
        if os.path.isdir(target) and not os.path.islink(target):
            _remove(Path(target))
        _unlink(target)
    elif size == FOLDER:
        _make_folders(target)
    elif size == SYMLINK and writes[0][1]:  # else a socket or a FIFO, which copies leave out as well
        os.symlink(os.fsdecode(writes[0][1]), target)
    elif size == LINK:
        _unlink(target)
        os.link(folder + os.fsdecode(writes[0][1]), target)
    return False


def _unlink(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def _write_patch(target: str, size: int, writes: Sequence[tuple[int, bytes]], path: str, last: _Last) -> bool:
    """Returns whether the file was not there before."""
    made = False
    try:
        fd = os.open(target, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        fd = last.create(target, path)
        made = True
    try:
        end = os.fstat(fd).st_size
        if end > size:
            os.ftruncate(fd, size)
        for offset, data in writes:
            sparse.write_all(fd, data, offset)
            end = max(end, offset + len(data))
        if end < size:
            os.ftruncate(fd, size)
    finally:
        os.close(fd)
    return made


class _Last:
    """What the workload left: a new file gets its owner and mode there; else it is a secret of who owns its folder."""

    def __init__(self, folder: str) -> None:
        """`folder` ends with a slash."""
        self._folder = folder
        self._known: dict[str, tuple[os.stat_result, int]] = {}
        self._is_root = os.geteuid() == 0

    def create(self, target: str, path: str) -> int:
        """Create an empty file, and open it."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            fd = os.open(target, flags, 0o644)
        except FileNotFoundError:
            _make_folders(os.path.dirname(target))
            fd = os.open(target, flags, 0o644)
        if self._is_root:
            status, mode = self._known.get(path) or self._status(path, os.path.dirname(target))
            sparse.keep_owner(fd, status)
            os.fchmod(fd, mode)
        return fd

    def _status(self, path: str, folder: str) -> tuple[os.stat_result, int]:
        try:
            status = os.lstat(self._folder + path)
        except (FileNotFoundError, NotADirectoryError):
            status = os.stat(folder)
        mode = stat.S_IMODE(status.st_mode) if stat.S_ISREG(status.st_mode) else 0o600
        self._known[path] = status, mode
        return status, mode


def _last(first: Path) -> str:
    """What the workload left, beside the first image of its recording; with a slash at the end."""
    return f"{first.with_name('pool')}/"


def _make_folders(path: str) -> None:
    """Make a folder and those above it. Each belongs to who owns the one above."""
    if not os.path.isdir(path):
        _make_folders(os.path.dirname(path))
        os.mkdir(path)
        sparse.keep_owner(path, os.stat(os.path.dirname(path)))


def _equalise_by_reading(source: int, target: int) -> None:
    """As sparse.equalise, for a source that is open for reading only."""
    size = os.fstat(source).st_size
    os.ftruncate(target, 0)
    os.ftruncate(target, size)
    for low, high in sparse.extents(source, 0, size):
        sparse.copy_range(source, target, low, high, skip_zeros=True)


def _remove(path: Path) -> None:
    """Remove whatever is there, folders whose modes forbid it included."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return
    for top, folders, _ in os.walk(path):
        os.chmod(top, 0o700)
        for name in folders:
            if not os.path.islink(os.path.join(top, name)):
                os.chmod(os.path.join(top, name), 0o700)
    shutil.rmtree(path)


def write_image(first: Path, patches: Patches, folder: Path) -> None:
    """Write the first image with `patches` applied into `folder`, which must not exist."""
    sparse.copy_tree(first, folder)
    patch_image(folder, patches, _last(first))


def patch_image(folder: Path, patches: Patches, last: str = "/dev/null/") -> None:
    """Apply patches to an image on its own; `last`: what the workload left, with a slash at the end."""
    of_last = _Last(last)
    for path, exists, size, writes in patches:
        _put(f"{folder}/", path, exists, size, writes, of_last)


def home(
    work: Path, image_bytes: int, workers: int, shared_memory: Path = _SHARED_MEMORY, source: Path | None = None
) -> Path:
    """A new folder for images: on tmpfs if six copies a worker fit twice into it and into memory, else in `work`.

    Whoever can enter `source` (default: `work`) can enter it.
    """
    need = 12 * image_bytes * workers + (16 << 20)
    parent = work
    try:
        room = os.statvfs(shared_memory)
        if (
            room.f_bavail * room.f_frsize >= need
            and _available_memory() >= need
            and os.access(shared_memory, os.W_OK | os.X_OK)
        ):
            parent = shared_memory
    except OSError:
        pass
    made = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    sparse.let_enter(made, work if source is None else source)
    return made


@contextlib.contextmanager
def held_home(work: Path, image_bytes: int, workers: int, source: Path | None = None) -> Iterator[Path]:
    """A `home` that is ours until the end, when it is removed. Those that killed runs left are removed at once."""
    remove_abandoned(work)
    made = home(work, image_bytes, workers, source=source)
    held = lock(made)
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)
        os.close(held)


def lock(folder: Path) -> int:
    """Hold a home as ours until the descriptor is closed, by us or by our death."""
    fd = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX)
    return fd


def remove_abandoned(work: Path, shared_memory: Path = _SHARED_MEMORY) -> None:
    """Remove image folders whose run was killed: nobody holds their lock any more."""
    for parent in (shared_memory, work):
        for folder in sorted(parent.glob(_PREFIX + "*")) if parent.is_dir() else []:
            try:
                fd = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC)
            except OSError:
                continue  # being made, or not ours
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(fd).st_mtime > time.time() - _YOUNG_S:
                    continue  # its run may be about to lock it
                shutil.rmtree(folder, ignore_errors=True)
            except BlockingIOError:
                pass
            finally:
                os.close(fd)


def _available_memory() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0
