"""The kept verdicts of one search: which images need not be run, and which are kept for the next search."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from crashcheck.cache import cache_folder
from crashcheck.checker.kept.dependencies import Dependencies, Listing, Unkept
from crashcheck.checker.kept.store import KeptImages, Unusable
from crashcheck.runtime.exploration import OpenGranule

_BATCH = 128  # images that are kept at once: what a killed search loses at most


def database() -> Path:
    """Where verdicts are kept."""
    return cache_folder() / "verdicts.sqlite"


def moment(seconds: int) -> str:
    """As reports show it. `seconds` of the epoch."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


class KeptVerdicts:
    """Use `passed` and `keep` while the search lasts, `close` after it.

    `why`: the reason why no more verdicts are kept; empty while they are. `since`: when an earlier search last kept
    some; empty if none did.
    """

    def __init__(self, base: bytes, own: tuple[Path, ...], path: Path | None = None) -> None:
        """`base`: what all runs of the search have in common, whatever they read. `own`: as Dependencies has it."""
        # constant
        self._base = base
        self._dependencies = Dependencies(own)
        # changing
        self.why = ""
        self.since = ""
        self._store: KeptImages | None = None
        self._known: set[bytes] = set()  # images that passed in an earlier search
        self._common: set[str] = set()  # records of runs that all verdicts rest on
        self._batch: list[tuple[Listing, bytes]] = []
        try:
            self._store = KeptImages(path or database())
            used = self._store.last_used(base)
            self.since = moment(used) if used is not None else ""
            for number, listing, state in self._store.listings(base):
                if self._dependencies.state(listing) == state:
                    self._known |= self._store.images(number)
        except Unusable as error:
            self._stop(f"the verdicts of earlier runs cannot be used: {error}")

    def passed(self, image: bytes) -> bool:
        """Whether an image passed in an earlier search, and would now."""
        return image in self._known

    def keep(self, image: bytes, records: bytes | None, references: Iterable[bytes | None] = ()) -> None:
        """Keep that an image passed, by a run with these records (None: it was not followed).

        `references`: the records of all runs that the judgements rest on, so far.
        """
        if self.why:
            return
        for each in references:
            self._common.update(self._listing(each) or ())
        listing = self._listing(records)
        if listing is None:
            return
        if self._common:
            listing = tuple(sorted(self._common.union(listing)))
        self._batch.append((listing, image))
        if len(self._batch) >= _BATCH:
            self._write()

    def close(self) -> None:
        """Keep what was not written."""
        self._write()
        if self._store is not None:
            self._store.close()
            self._store = None

    def _listing(self, records: bytes | None) -> Listing | None:
        """None where nothing may be kept any more, for a reason that concerns all runs."""
        found = Unkept("the kernel does not let it be followed") if records is None else None
        listing = found or self._dependencies.listing(records or b"")
        if isinstance(listing, Unkept):
            self._stop(listing.why)
            return None
        return listing

    def _write(self) -> None:
        batch, self._batch = self._batch, []
        if self._store is None or not batch:
            return
        rows = []
        for listing, image in batch:
            state = self._dependencies.state(listing)
            if state is not None:
                rows.append((listing, state, image))
        if len(rows) < len(batch) or not self._dependencies.unchanged():
            self._stop("a file that it uses was changed meanwhile")
            return
        try:
            self._store.add(self._base, rows)
        except Unusable as error:
            self._stop(str(error))

    def _stop(self, why: str) -> None:
        self.why = self.why or why


def product_key(granules: Iterable[OpenGranule], full: bytes, context: bytes) -> bytes:
    """All images of a product; `full`: the fingerprint of the one of which nothing is lost; `context`: as image_key."""
    digest = hashlib.blake2b(full + context, digest_size=16, key=b"product")
    for granule in granules:
        digest.update(repr((granule.path, granule.offset, granule.contents)).encode("utf-8", "surrogateescape"))
    return digest.digest()


def image_key(fingerprint: bytes, context: bytes) -> bytes:
    """An image under what the oracle knows of its crash point."""
    return hashlib.blake2b(fingerprint + context, digest_size=16).digest() if context else fingerprint
