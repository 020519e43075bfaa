"""Sparse files: which ranges hold data, and copies that keep holes, so that a large pool takes no more space."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

CHUNK_BYTES = 256 * 1024
_ZEROS = bytes(CHUNK_BYTES)

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
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, offset)
        view = view[written:]
        offset += written


def copy_file(source: Path, target: Path) -> None:
    """Copy a regular file with its mode, data ranges only; zeros become holes."""
    with source.open("rb", buffering=0) as read:
        status = os.fstat(read.fileno())
        fd = os.open(target, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            os.ftruncate(fd, status.st_size)
            for low, high in extents(read.fileno(), 0, status.st_size):
                copy_range(read.fileno(), fd, low, high, skip_zeros=True)
            os.fchmod(fd, stat.S_IMODE(status.st_mode))
        finally:
            os.close(fd)


def copy_tree(source: Path, target: Path) -> None:
    """Copy a folder of regular files, folders and symbolic links; other kinds of files are left out."""
    target.mkdir(parents=True, exist_ok=True)
    with os.scandir(source) as entries:
        for entry in sorted(entries, key=lambda e: e.name):
            there = target / entry.name
            if entry.is_symlink():
                there.symlink_to(os.readlink(entry.path))
            elif entry.is_dir():
                copy_tree(Path(entry.path), there)
            elif entry.is_file():
                copy_file(Path(entry.path), there)
    os.chmod(target, stat.S_IMODE(source.stat().st_mode))
