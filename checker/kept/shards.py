"""A search that is divided among machines: each executes a share, and writes how its runs of the check ended to a file.

Every shard goes through the whole search, in its order, as if what belongs to others had passed. The search that merges
them takes the runs from the files, and executes what none of them has. It alone judges and explains: what it finds is
what an undivided search finds, whatever the shards left out.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from crashcheck.checker.execution.process import Ended
from crashcheck.checker.execution.tasks import Run
from crashcheck.errors import CrashcheckError
from crashcheck.runtime.exploration import Explored

_FORMAT = 1


class Share(msgspec.Struct, frozen=True):
    """Number `index`, from 1, of `of` shards."""

    index: int
    of: int

    def __str__(self) -> str:
        return f"{self.index}/{self.of}"


class SearchKey(msgspec.Struct, frozen=True):
    """What all shards of one search have in common."""

    recording: bytes
    check: bytes
    search: bytes


class Shard(msgspec.Struct):
    """A shard's file. `complete`: its search was not cut short by time, by the user, or by a full disk."""

    format: int
    share: Share
    key: SearchKey
    complete: bool
    names: list[dict[str, str]]  # paths of its workers, and what they are called in outputs
    runs: dict[bytes, tuple[Ended, int]]  # by image; with the number of the names
    explored: dict[bytes, tuple[Explored, str]]  # by product; with the folder in which its runs found their image


class SharedRuns:
    """Runs of the check by image: those that shards have brought, and those that this search adds."""

    def __init__(self, share: Share | None = None, shards: Sequence[Shard] = ()) -> None:
        """`share`: what this search executes itself, if it is a shard."""
        # constant
        self.share = share
        self.complete = all(shard.complete for shard in shards)
        # changing
        self._names: list[dict[str, str]] = []
        self._runs: dict[bytes, tuple[Ended, int]] = {}
        self._explored: dict[bytes, tuple[Explored, str]] = {}
        for shard in shards:
            first = len(self._names)
            self._names += shard.names
            self._runs.update((image, (ended, first + names)) for image, (ended, names) in shard.runs.items())
            self._explored.update(shard.explored)

    def is_elsewhere(self, name: bytes) -> bool:
        """Whether another shard executes what has this name.

        By chance, and not in turn: that would give all large moments of similar operations to one shard.
        """
        if self.share is None:
            return False
        drawn = int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "little")
        return drawn % self.share.of != self.share.index - 1

    def has(self, image: bytes) -> bool:
        return image in self._runs

    def run(self, image: bytes, point: int) -> Run | None:
        """How the check ended on an image, if that is known."""
        known = self._runs.get(image)
        return None if known is None else Run(point, known[0], self._names[known[1]])

    def add(self, image: bytes, run: Run) -> None:
        self._runs[image] = run.ended._replace(inputs=None), self._number_of(run.names)

    def explored(self, product: bytes) -> tuple[Explored, Path] | None:
        """What explored runs have shown of a product, and in which folder, if that is known."""
        known = self._explored.get(product)
        return None if known is None else (known[0], Path(known[1]))

    def add_explored(self, product: bytes, explored: Explored, folder: Path) -> None:
        self._explored[product] = explored, str(folder)

    def _number_of(self, names: Mapping[str, str]) -> int:
        plain = dict(names)
        if plain not in self._names:
            self._names.append(plain)
        return self._names.index(plain)

    def shard(self, key: SearchKey, complete: bool) -> Shard:
        """All of it, as a shard's file."""
        assert self.share is not None
        return Shard(_FORMAT, self.share, key, complete, self._names, self._runs, self._explored)


def write_shard(path: Path, shard: Shard) -> None:
    """Raises CrashcheckError(report-unwritable). Nobody sees a part of a file."""
    new = path.with_name(f"{path.name}.new")
    try:
        new.write_bytes(zlib.compress(msgspec.msgpack.encode(shard), 1))
        new.replace(path)
    except OSError as error:
        raise CrashcheckError("report-unwritable", f"{path} cannot be written: {error.strerror}.") from error


def read_shard(path: Path) -> Shard:
    """Raises CrashcheckError(shard-unreadable)."""
    try:
        shard = msgspec.msgpack.decode(zlib.decompress(path.read_bytes()), type=Shard)
    except OSError as error:
        raise CrashcheckError("shard-unreadable", f"{path} cannot be read: {error.strerror}.") from error
    except (zlib.error, ValueError, RecursionError) as error:  # msgspec.ValidationError is a ValueError
        raise CrashcheckError("shard-unreadable", f"{path} is no file of a shard: {error}.") from error
    if shard.format != _FORMAT:
        raise CrashcheckError("shard-unreadable", f"{path} was written by another version of crashcheck.")
    return shard


def merged(paths: Sequence[Path], key: SearchKey) -> tuple[SharedRuns, tuple[str, ...]]:
    """The runs of all shards, and remarks on those that are missing or incomplete.

    Raises CrashcheckError: shard-unreadable, shards-differ.
    """
    shards = [read_shard(path) for path in paths]
    for path, shard in zip(paths, shards, strict=True):
        _refuse_other(path, shard, key, shards[0].share.of)
    of = shards[0].share.of
    missing = sorted(set(range(1, of + 1)) - {shard.share.index for shard in shards})
    remarks = [f"shard {index}/{of} is missing: its crash states are executed here" for index in missing]
    remarks += [
        f"shard {shard.share} ended before its crash states did: those left are executed here"
        for shard in shards
        if not shard.complete
    ]
    return SharedRuns(shards=shards), tuple(remarks)


def _refuse_other(path: Path, shard: Shard, key: SearchKey, of: int) -> None:
    """Raises CrashcheckError(shards-differ) if a shard is not one of the search that merges it."""
    why = next(
        (
            text
            for name, text in (
                ("recording", "is of another recording: the workload, or what it did, differs"),
                ("check", "was made with another check: its program, its settings, or crashcheck itself differs"),
                ("search", "is of another search: the model, the strategy or the change under review differs"),
            )
            if getattr(shard.key, name) != getattr(key, name)
        ),
        "",
    )
    if not why and shard.share.of != of:
        why = f"is one of {shard.share.of} shards, and the first file one of {of}"
    if why:
        raise CrashcheckError("shards-differ", f"{path} {why}.", "Record once, and pass that on to every shard.")
