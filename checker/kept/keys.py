"""What kept runs of a check are found again by: images and products by their contents, a search by what decides it."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import msgspec

import crashcheck
from crashcheck.runtime.exploration import OpenGranule


class SearchKey(msgspec.Struct, frozen=True):
    """What all shards of one search have in common, and a search with the one that it resumes."""

    recording: bytes
    check: bytes
    search: bytes


def image_key(fingerprint: bytes, context: bytes) -> bytes:
    """An image under what the oracle knows of its crash point."""
    return hashlib.blake2b(fingerprint + context, digest_size=16).digest() if context else fingerprint


def product_key(granules: Iterable[OpenGranule], full: bytes, context: bytes) -> bytes:
    """All images of a product; `full`: the fingerprint of the one of which nothing is lost; `context`: as image_key."""
    digest = hashlib.blake2b(full + context, digest_size=16, key=b"product")
    for granule in granules:
        digest.update(repr((granule.path, granule.offset, granule.contents)).encode("utf-8", "surrogateescape"))
    return digest.digest()


def digest_of(parts: Iterable[str]) -> bytes:
    """16 bytes, of all parts in their order."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(hashlib.sha256(part.encode("utf-8", "surrogateescape")).digest())
    return digest.digest()


@cache
def sources() -> str:
    """The hash of crashcheck itself."""
    digest = hashlib.sha256(crashcheck.__version__.encode())
    home = Path(crashcheck.__file__).parent
    for folder, folders, files in os.walk(home, followlinks=True):
        folders.sort()
        for name in sorted(files):
            if name.endswith((".py", ".c", ".h", ".def")):
                digest.update(name.encode() + b"\0" + Path(folder, name).read_bytes())
    return digest.hexdigest()


def content_of_folder(folder: Path) -> Iterator[str]:
    """Names, kinds, permissions and contents of everything in a folder."""
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        yield f"{path.relative_to(folder)} {status.st_mode:o}"
        if stat.S_ISLNK(status.st_mode):
            yield os.readlink(path)
        elif stat.S_ISREG(status.st_mode):
            yield content_of_file(path)


def content_of_file(path: Path) -> str:
    """The hash of a file's content; "none" if there is no file."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return "none"
