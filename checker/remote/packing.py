"""Files and folders as pieces with content hashes, so that a machine is sent only what it has not got.

Holes stay holes: a large pool file is as small in pieces as on disk.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from crashcheck.runtime import sparse

_PIECE_BYTES = 4 << 20


class Packed(NamedTuple):
    """A file (`size` >= 0), a folder, a symbolic link, or another name of a file; `path` is relative."""

    path: str
    kind: str  # "file", "folder", "symlink", "link"
    mode: int = 0
    size: int = 0
    pieces: tuple[tuple[int, bytes], ...] = ()  # offset, SHA-256
    target: str = ""  # of links; of "link" a path as this one


class Place(NamedTuple):
    """Where a piece can be read."""

    path: Path
    offset: int
    size: int

    def read(self) -> bytes:
        with self.path.open("rb", buffering=0) as file:
            return os.pread(file.fileno(), self.size, self.offset)


def packed_file(source: Path, path: str, places: dict[bytes, Place]) -> Packed:
    """A regular file, or what a link leads to. Where its pieces are is added to `places`."""
    pieces = []
    with source.open("rb", buffering=0) as file:
        status = os.fstat(file.fileno())
        for low, high in sparse.extents(file.fileno(), 0, status.st_size):
            for at in range(low, high, _PIECE_BYTES):
                place = Place(source, at, min(_PIECE_BYTES, high - at))
                digest = hashlib.sha256(os.pread(file.fileno(), place.size, at)).digest()
                places[digest] = place
                pieces.append((at, digest))
    return Packed(path, "file", stat.S_IMODE(status.st_mode), status.st_size, tuple(pieces))


def packed_folder(source: Path, path: str, places: dict[bytes, Place]) -> Iterator[Packed]:
    """A folder and all that is in it, as sparse.copy_tree copies it: each folder before what it holds."""
    linked: dict[tuple[int, int], str] = {}
    for top, folders, files in os.walk(source):
        relative = os.path.normpath(os.path.join(path, os.path.relpath(top, source)))
        yield Packed(relative, "folder", stat.S_IMODE(os.stat(top).st_mode))
        folders.sort()
        for name in sorted([*folders, *files]):
            there, here = Path(top, name), f"{relative}/{name}"
            status = there.lstat()
            file = status.st_dev, status.st_ino
            if stat.S_ISLNK(status.st_mode):
                yield Packed(here, "symlink", target=os.readlink(there))
            elif stat.S_ISREG(status.st_mode) and file in linked:
                yield Packed(here, "link", target=linked[file])
            elif stat.S_ISREG(status.st_mode):
                linked[file] = here
                yield packed_file(there, here, places)


def unpack(entries: Sequence[Packed], folder: Path, piece: Callable[[bytes], bytes]) -> None:
    """Write all of it below `folder`. `piece`: the content of a hash."""
    for entry in entries:
        target = folder / entry.path
        target.parent.mkdir(parents=True, exist_ok=True)
        if entry.kind == "folder":
            target.mkdir(exist_ok=True)
        elif entry.kind == "symlink":
            target.symlink_to(entry.target)
        elif entry.kind == "link":
            os.link(folder / entry.target, target)
        else:
            _write(entry, target, piece)
    for entry in reversed(entries):  # a folder that must not be written to is full by now
        if entry.kind == "folder":
            os.chmod(folder / entry.path, entry.mode)


def _write(entry: Packed, target: Path, piece: Callable[[bytes], bytes]) -> None:
    fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.ftruncate(fd, entry.size)
        for offset, digest in entry.pieces:
            sparse.write_all(fd, piece(digest), offset)
        os.fchmod(fd, entry.mode)
    finally:
        os.close(fd)


def digests(entries: Sequence[Packed]) -> Mapping[bytes, None]:
    """The hashes of all pieces, each once, in order."""
    return {digest: None for entry in entries for _, digest in entry.pieces}
