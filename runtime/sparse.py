"""Copies of pools that keep holes as holes, so that a sparse pool of 1 GiB costs what it holds."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from pathlib import Path

_BLOCK_BYTES = 1 << 20


def copy_tree(source: Path, target: Path) -> None:
    """Copies regular files (sparse), folders and symbolic links; sockets, pipes and devices are left out."""
    target.mkdir(parents=True, exist_ok=True)
    with os.scandir(source) as entries:
        for entry in sorted(entries, key=lambda one: one.name):
            to = target / entry.name
            if entry.is_symlink():
                to.symlink_to(os.readlink(entry.path))
            elif entry.is_dir():
                copy_tree(Path(entry.path), to)
            elif entry.is_file():
                copy_file(Path(entry.path), to)
    shutil.copymode(source, target)


def copy_file(source: Path, target: Path) -> None:
    """Copies data and permissions of one regular file; what is a hole in `source` is one in `target`."""
    reading = os.open(source, os.O_RDONLY)
    try:
        state = os.fstat(reading)
        writing = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            os.ftruncate(writing, state.st_size)
            at = 0
            while at < state.st_size:
                try:
                    at = os.lseek(reading, at, os.SEEK_DATA)
                except OSError as error:
                    if error.errno == errno.ENXIO:
                        break
                    raise
                hole = os.lseek(reading, at, os.SEEK_HOLE)
                _copy_range(reading, writing, at, hole)
                at = hole
            os.fchmod(writing, stat.S_IMODE(state.st_mode))
        finally:
            os.close(writing)
    finally:
        os.close(reading)


def _copy_range(reading: int, writing: int, at: int, end: int) -> None:
    while at < end:
        block = os.pread(reading, min(_BLOCK_BYTES, end - at), at)
        if not block:
            return
        view = memoryview(block)
        while view:
            written = os.pwrite(writing, view, at)
            view = view[written:]
            at += written
