"""Sparse files: which ranges hold data; copies that keep holes; making one file equal to another, and comparing two.

A large pool so takes no more space, and no more time, than what it holds.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import hashlib
import itertools
import mmap
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

CHUNK_BYTES = 256 * 1024
_ZEROS = bytes(CHUNK_BYTES)
_FICLONE = 0x40049409  # _IOW(0x94, 9, int): a file gets the blocks of a second one, both keep them
_FALLOC_PUNCH = 0x01 | 0x02  # FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE

_libc = ctypes.CDLL(None, use_errno=True)
_libc.memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
_libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)

Range = tuple[int, int]  # [low, high) in bytes


def extents(fd: int, low: int, high: int) -> list[Range]:
    """The ranges of `[low, high)` that hold data, in order; the whole range where holes are not reported."""
    found: list[Range] = []
    at = low
    while at < high:
        try:
            start = os.lseek(fd, at, os.SEEK_DATA)
            end = os.lseek(fd, start, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:
                break
            if error.errno == errno.EINVAL:
                found.append((at, high))
                break
            raise
        if start >= high:
            break
        found.append((start, min(end, high)))
        at = end
    return found


def copy_range(source: int, target: int, low: int, high: int, *, skip_zeros: bool = False) -> None:
    """Copy the bytes `[low, high)` between descriptors; short where `source` ends earlier."""
    at = low
    while at < high:
        chunk = os.pread(source, min(CHUNK_BYTES, high - at), at)
        if not chunk:
            return
        if not (skip_zeros and chunk == _ZEROS[: len(chunk)]):
            write_all(target, chunk, at)
        at += len(chunk)


def write_all(fd: int, data: bytes, offset: int) -> None:
    """Write all of `data` at `offset`; OSError with ENOSPC where it does not fit."""
    written = os.pwrite(fd, data, offset)
    while written < len(data):
        written += os.pwrite(fd, memoryview(data)[written:], offset + written)


def copy_file(source: Path, target: Path) -> None:
    """Copy a regular file with its mode, data ranges only; zeros become holes. Blocks are shared where that works."""
    with source.open("rb", buffering=0) as read:
        status = os.fstat(read.fileno())
        fd = os.open(target, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            if not _share(read.fileno(), fd):
                os.ftruncate(fd, status.st_size)
                for low, high in extents(read.fileno(), 0, status.st_size):
                    copy_range(read.fileno(), fd, low, high, skip_zeros=True)
            keep_owner(fd, status)
            os.fchmod(fd, stat.S_IMODE(status.st_mode))
        finally:
            os.close(fd)


def content_digest(path: Path) -> bytes:
    """Of a regular file's bytes: of what it holds, whether zeros are written or a hole."""
    state = hashlib.blake2b(digest_size=16)
    with path.open("rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        state.update(b"%d" % size)
        done = 0  # where the chunks end that were read
        for low, high in extents(file.fileno(), 0, size):
            for at in range(max(done, low - low % CHUNK_BYTES), high, CHUNK_BYTES):
                chunk = os.pread(file.fileno(), CHUNK_BYTES, at)
                done = at + CHUNK_BYTES
                if chunk != _ZEROS[: len(chunk)]:
                    state.update(b" %d " % at + chunk)
    return state.digest()


def keep_owner(copy: int | str | Path, status: os.stat_result) -> None:
    """Give a copy the owner of what has `status`, as root: a server that drops its rights has to find its own files."""
    if os.geteuid() == 0 and (status.st_uid, status.st_gid) != (0, 0):
        with contextlib.suppress(OSError):  # an owner that a container does not know
            os.chown(copy, status.st_uid, status.st_gid)


def let_enter(folder: Path, like: Path) -> None:
    """Let others enter `folder`, of ours alone so far, if they can enter `like`: no more is opened than there is.

    They cannot list it. Only for root: a server that it starts may drop its rights, and has to reach its files.
    """
    if os.geteuid() == 0 and all(above.stat().st_mode & stat.S_IXOTH for above in (like, *like.absolute().parents)):
        folder.chmod(0o711)


def _share(source: int, target: int) -> bool:
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError:
        return False
    return True


def copy_tree(
    source: Path,
    target: Path,
    linked: dict[tuple[int, int], Path] | None = None,
    *,
    lenient: bool = False,
    missing: bool = False,
    within: str = "",
) -> set[str]:
    """Copy a folder of regular files, folders and symbolic links; other kinds of files are left out.

    Names of one file are names of one file in the copy. `linked`: the copies of such files so far.
    `missing`: only what the target does not have.
    `lenient`, for a folder of the user's: other kinds are created, what cannot be read and other file systems are
    there without content, and the owner may read and write all copies. Returns the paths of what lacks content.
    """
    linked = {} if linked is None else linked
    lacking: set[str] = set()
    target.mkdir(parents=True, exist_ok=True)
    above = source.stat()
    with os.scandir(source) as entries:
        for entry in sorted(entries, key=lambda e: e.name):
            there, path = target / entry.name, f"{within}{entry.name}"
            try:
                status = entry.stat(follow_symlinks=False)
                file = status.st_dev, status.st_ino
                if missing and os.path.lexists(there) and not entry.is_dir(follow_symlinks=False):
                    continue
                if entry.is_symlink():
                    there.symlink_to(os.readlink(entry.path))
                elif entry.is_dir(follow_symlinks=False):
                    if lenient and status.st_dev != above.st_dev:
                        raise PermissionError(errno.EXDEV, "another file system")
                    below, own = Path(entry.path), f"{path}/"
                    lacking |= copy_tree(below, there, linked, lenient=lenient, missing=missing, within=own)
                elif file in linked:
                    os.link(linked[file], there)
                elif stat.S_ISREG(status.st_mode):
                    copy_file(Path(entry.path), there)
                    if lenient:
                        there.chmod(stat.S_IMODE(status.st_mode) | 0o600)
                    if status.st_nlink > 1:
                        linked[file] = there
                elif lenient:
                    os.mknod(there, stat.S_IFMT(status.st_mode) | 0o600, status.st_rdev)
            except FileNotFoundError:
                if not lenient:
                    raise  # else another process has removed it meanwhile
            except PermissionError:
                if not lenient:
                    raise
                lacking.add(path)
                _stand_in(there, status)
    keep_owner(target, above)
    os.chmod(target, stat.S_IMODE(above.st_mode) | (0o700 if lenient else 0))
    return lacking


def restore_tree(source: Path, target: Path) -> None:
    """Make a folder what `copy_tree` makes of `source`; files that are equal stay, and get the time of now.

    To compare a file takes less than to create one: ext4 first passes over each inode that was freed in the last
    minutes (a folder of 970 files: copied in 1.7 s, restored in 0.2 s).
    """
    if target.is_dir():
        _keep_equal(source, target)
    copy_tree(source, target, missing=True)


def _keep_equal(source: Path, target: Path) -> None:
    """Remove from a folder what differs from another one."""
    for name in os.listdir(target):
        like, there = source / name, target / name
        if there.is_dir() and not there.is_symlink():
            if like.is_dir() and not like.is_symlink() and not os.listxattr(there):
                _keep_equal(like, there)
            else:
                shutil.rmtree(there)
        elif not _is_kept(like, there):
            there.unlink()
    os.utime(target)


def _is_kept(source: Path, target: Path) -> bool:
    """Whether two files with one name each are equal; then the second one has the mode and owner of the first."""
    try:
        status, there = source.lstat(), target.lstat()
        if not all(stat.S_ISREG(one.st_mode) and one.st_nlink == 1 for one in (status, there)):
            return False
        if os.listxattr(target) or not equal_files(source, target):
            return False
    except (FileNotFoundError, PermissionError):
        return False
    if os.geteuid() == 0 and (status.st_uid, status.st_gid) != (there.st_uid, there.st_gid):
        os.chown(target, status.st_uid, status.st_gid)
    target.chmod(stat.S_IMODE(status.st_mode))
    os.utime(target)
    return True


def _stand_in(path: Path, status: os.stat_result) -> None:
    """Something of the same kind and size, without content; nothing instead of a device."""
    if stat.S_ISDIR(status.st_mode):
        path.mkdir(exist_ok=True)
    elif stat.S_ISREG(status.st_mode):
        with path.open("wb") as file:
            file.truncate(status.st_size)


def data_bytes(folder: Path) -> int:
    """Bytes of data, holes excluded, in all regular files below `folder`."""
    total = 0
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or path.is_symlink():
            continue
        with path.open("rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            total += sum(high - low for low, high in extents(file.fileno(), 0, size))
    return total


def punch(fd: int, low: int, high: int) -> None:
    """Turn a range into zeros, as a hole where the file system has them."""
    if _libc.fallocate(fd, _FALLOC_PUNCH, low, high - low) == 0:
        return
    code = ctypes.get_errno()
    if code not in (errno.EOPNOTSUPP, errno.ENOSYS):
        raise OSError(code, os.strerror(code))
    for at in range(low, high, CHUNK_BYTES):
        write_all(fd, _ZEROS[: min(CHUNK_BYTES, high - at)], at)


class Mapping:
    """A file mapped whole, to compare it without copying; only ranges with data may be touched."""

    def __init__(self, fd: int, size: int) -> None:
        """Map `size` > 0 bytes of `fd`, which must be open for writing (ctypes needs a writable buffer)."""
        self.size = size
        self._map = mmap.mmap(fd, size)
        anchor = ctypes.c_char.from_buffer(self._map)
        self._address = ctypes.addressof(anchor)
        del anchor

    def equal(self, other: Mapping, low: int, high: int) -> bool:
        return int(_libc.memcmp(self._address + low, other._address + low, high - low)) == 0

    def close(self) -> None:
        self._map.close()


def _split(first: list[Range], second: list[Range]) -> Iterator[tuple[int, int, bool, bool]]:
    """The union of two range lists, cut where membership changes: (low, high, in first, in second)."""
    cuts = sorted({edge for low, high in (*first, *second) for edge in (low, high)})
    i = j = 0
    for low, high in itertools.pairwise(cuts):
        while i < len(first) and first[i][1] <= low:
            i += 1
        while j < len(second) and second[j][1] <= low:
            j += 1
        inside_first = i < len(first) and first[i][0] <= low
        inside_second = j < len(second) and second[j][0] <= low
        if inside_first or inside_second:
            yield low, high, inside_first, inside_second


def equalise(source: int, target: int, maps: tuple[Mapping, Mapping] | None = None) -> int:
    """Give the open file `target` the size and bytes of `source`; returns the bytes written or punched.

    Reads data ranges only: a sparse file costs what it holds, not its size. Both must be open for
    writing. `maps` are mappings of both at their present, equal size, to save mapping them again.
    """
    size = os.fstat(source).st_size
    if os.fstat(target).st_size != size:
        os.ftruncate(target, size)
    if size == 0:
        return 0
    own = maps is None
    pair = (Mapping(source, size), Mapping(target, size)) if maps is None else maps
    changed = 0
    try:
        for low, high, wanted, present in _split(extents(source, 0, size), extents(target, 0, size)):
            if not wanted:
                punch(target, low, high)
                changed += high - low
                continue
            if not present:
                copy_range(source, target, low, high, skip_zeros=True)
                changed += high - low
                continue
            for at in range(low, high, CHUNK_BYTES):
                end = min(at + CHUNK_BYTES, high)
                if not pair[0].equal(pair[1], at, end):
                    copy_range(source, target, at, end)
                    changed += end - at
    finally:
        if own:
            pair[0].close()
            pair[1].close()
    return changed


def equal_files(left: Path, right: Path) -> bool:
    """Whether two files hold the same size and bytes, reading data ranges only."""
    with left.open("rb", buffering=0) as a, right.open("rb", buffering=0) as b:
        size = os.fstat(a.fileno()).st_size
        if os.fstat(b.fileno()).st_size != size:
            return False
        for low, high, _, _ in _split(extents(a.fileno(), 0, size), extents(b.fileno(), 0, size)):
            for at in range(low, high, CHUNK_BYTES):
                length = min(CHUNK_BYTES, high - at)
                if os.pread(a.fileno(), length, at) != os.pread(b.fileno(), length, at):
                    return False
    return True
