"""A search that is divided among machines: each executes a share, and writes how its runs of the check ended to a file.

Every shard goes through the whole search, in its order, as if what belongs to others had passed. The search that merges
them takes the runs from the files, and executes what none of them has. It alone judges and explains: what it finds is
what an undivided search finds, whatever the shards left out. A search that is resumed takes what passed from the file
of the search before it in the same way.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from crashcheck.checker.execution.process import Ended
from crashcheck.checker.execution.tasks import Run
from crashcheck.checker.kept.keys import SearchKey
from crashcheck.checker.kept.runs_file import Batch, Contents, RunsFile, Share, read_runs_file
from crashcheck.errors import CrashcheckError
from crashcheck.runtime.exploration import Explored


class KnownRuns:
    """Runs of the check that have ended elsewhere or earlier. `complete`: all searches that they are from came to
    their end; `since`: when the search ended that is resumed, empty where shards are merged."""

    def __init__(self, files: Sequence[Batch] = (), since: str = "") -> None:
        # all constant
        self.complete = all(each.complete for each in files)
        self.since = since
        self._names: list[dict[str, str]] = []
        self._runs: dict[bytes, tuple[Ended, int]] = {}
        self._explored: dict[bytes, tuple[Explored, str]] = {}
        for each in files:
            first = len(self._names)
            self._names += each.names
            self._runs.update((image, (ended, first + names)) for image, (ended, names) in each.runs.items())
            self._explored.update(each.explored)

    def __len__(self) -> int:
        return len(self._runs) + len(self._explored)

    def has(self, image: bytes) -> bool:
        return image in self._runs

    def run(self, image: bytes, point: int) -> Run | None:
        """How the check ended on an image, if that is known."""
        known = self._runs.get(image)
        return None if known is None else Run(point, known[0], self._names[known[1]])

    def explored(self, product: bytes) -> tuple[Explored, Path] | None:
        """What explored runs have shown of a product, and in which folder, if that is known."""
        known = self._explored.get(product)
        return None if known is None else (known[0], Path(known[1]))


@dataclass(frozen=True, slots=True)
class Exchange:
    """What a search takes from other searches, and what it leaves to them.

    `share`: what it executes itself, if it is a shard: then failures are left to the search that merges. `noted`: where
    its own runs are written.
    """

    known: KnownRuns = field(default_factory=KnownRuns)
    share: Share | None = None
    noted: RunsFile | None = None

    def anew(self) -> Exchange:
        """The same search from its beginning, where nothing counts that was run so far."""
        if self.noted is not None:
            self.noted.restart()
        return replace(self, known=KnownRuns())


ALONE = Exchange()


def is_in(share: Share, name: bytes) -> bool:
    """Whether a shard executes what has this name.

    By chance, and not in turn: that would give all large moments of similar operations to one shard.
    """
    drawn = int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "little")
    return drawn % share.of == share.index - 1


def merged(paths: Sequence[Path], key: SearchKey) -> tuple[KnownRuns, tuple[str, ...]]:
    """The runs of all shards, and remarks on those that are missing or incomplete.

    Raises CrashcheckError: shard-unreadable, shards-differ.
    """
    shards = [_shard(path) for path in paths]
    shares = [share for share, _ in shards]
    for path, (share, contents) in zip(paths, shards, strict=True):
        _refuse_other(path, share, contents.header.key, key, shares[0].of)
    of = shares[0].of
    missing = sorted(set(range(1, of + 1)) - {share.index for share in shares})
    remarks = [f"shard {index}/{of} is missing: its crash states are executed here" for index in missing]
    remarks += [
        f"shard {share} ended before its crash states did: those left are executed here"
        for share, contents in shards
        if not contents.all.complete
    ]
    return KnownRuns([contents.all for _, contents in shards]), tuple(remarks)


def _shard(path: Path) -> tuple[Share, Contents]:
    contents = read_runs_file(path)
    if contents.header.share is None:
        raise CrashcheckError(
            "shard-unreadable", f"{path} is no file of a shard: it is of a search that was not divided."
        )
    return contents.header.share, contents


def _refuse_other(path: Path, share: Share, has: SearchKey, wanted: SearchKey, of: int) -> None:
    """Raises CrashcheckError(shards-differ) if a shard is not one of the search that merges it."""
    why = next(
        (
            text
            for name, text in (
                ("recording", "is of another recording: the workload, or what it did, differs"),
                ("check", "was made with another check: its program, its settings, or crashcheck itself differs"),
                ("search", "is of another search: the model, the strategy or the change under review differs"),
            )
            if getattr(has, name) != getattr(wanted, name)
        ),
        "",
    )
    if not why and share.of != of:
        why = f"is one of {share.of} shards, and the first file one of {of}"
    if why:
        raise CrashcheckError("shards-differ", f"{path} {why}.", "Record once, and pass that on to every shard.")
