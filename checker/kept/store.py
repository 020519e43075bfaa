"""The database of kept verdicts: one row per image that passed, and whole runs; bounded, safe to share and to kill.

Of images only those that pass are kept. A row counts under its base (what all runs of one search share)
and while its listing (what its run depended on) has the same state. SQLite's rollback journal makes each batch
complete or absent, whatever happens to this process; other processes wait for a batch, not for a search.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from crashcheck.checker.kept.dependencies import Listing

MOST_IMAGES = 1_000_000  # some 50 MiB
MOST_RUNS = 200
_VERSION = 2
_WAIT_S = 10.0  # for another process's batch
_TABLES = f"""
    CREATE TABLE IF NOT EXISTS bases (id INTEGER PRIMARY KEY, key BLOB UNIQUE NOT NULL, used INTEGER NOT NULL);
    CREATE TABLE IF NOT EXISTS listings (
        id INTEGER PRIMARY KEY, base INTEGER NOT NULL, records BLOB NOT NULL, state BLOB NOT NULL,
        UNIQUE (base, records, state)
    );
    CREATE TABLE IF NOT EXISTS images (
        listing INTEGER NOT NULL, image BLOB NOT NULL, PRIMARY KEY (listing, image)
    ) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS runs (listing INTEGER PRIMARY KEY, made INTEGER NOT NULL, result BLOB NOT NULL);
    PRAGMA user_version = {_VERSION};
"""


_DAMAGED = (sqlite3.DatabaseError, UnicodeDecodeError)  # the second: SQLite's message quotes bytes of the file


class Unusable(Exception):
    """The database cannot be read or written; the text has the reason."""


class KeptImages:
    """The database, open."""

    def __init__(self, path: Path, most: int = MOST_IMAGES) -> None:
        """Raises Unusable. A file that is no database of this version is replaced."""
        self._most = most
        self._images: int | None = None  # how many there are; more, if other processes add some
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._database = self._opened(path)
        except (OSError, UnicodeDecodeError, sqlite3.Error) as error:
            raise Unusable(str(error)) from error

    def _opened(self, path: Path) -> sqlite3.Connection:
        for again in (False, True):
            database = sqlite3.connect(path, timeout=_WAIT_S, isolation_level=None)
            try:
                (version,) = database.execute("PRAGMA user_version").fetchone()
                if version in (0, _VERSION):
                    database.execute("PRAGMA synchronous = NORMAL")
                    database.executescript(_TABLES)
                    return database
            except sqlite3.OperationalError:
                database.close()
                raise
            except _DAMAGED:
                if again:
                    raise
            database.close()
            for name in (path, Path(f"{path}-journal")):
                with suppress(FileNotFoundError):
                    os.unlink(name)
        raise sqlite3.DatabaseError("it is no database of kept verdicts")

    def listings(self, base: bytes) -> list[tuple[int, Listing, bytes]]:
        """(number, listing, its state) of the runs of a base. Raises Unusable."""
        rows = self._all(
            "SELECT listings.id, records, state FROM listings JOIN bases ON bases.id = base WHERE key = ?", base
        )
        return [
            (number, tuple(filter(None, os.fsdecode(records).split("\0"))), state) for number, records, state in rows
        ]

    def images(self, listing: int) -> set[bytes]:
        """The images that passed with a listing. Raises Unusable."""
        return {image for (image,) in self._all("SELECT image FROM images WHERE listing = ?", listing)}

    def add(self, base: bytes, passed: Iterable[tuple[Listing, bytes, bytes]]) -> None:
        """Keep (listing, its state, image) of runs that passed, all of them or none. Raises Unusable."""
        with self._changing(base) as number:
            ids: dict[tuple[Listing, bytes], int] = {}
            added = 0
            for listing, state, image in passed:
                if (listing, state) not in ids:
                    ids[listing, state] = self._listing(number, listing, state)
                self._database.execute("INSERT OR IGNORE INTO images VALUES (?, ?)", (ids[listing, state], image))
                added += 1
            if self._images is not None:
                self._images += added
            self._bound(number)

    def run(self, listing: int) -> tuple[int, bytes] | None:
        """When the whole run with a listing was kept, in seconds of the epoch, and its result. Raises Unusable."""
        rows = self._all("SELECT CAST(made AS INTEGER), CAST(result AS BLOB) FROM runs WHERE listing = ?", listing)
        return rows[0] if rows else None

    def add_run(self, base: bytes, listing: Listing, state: bytes, result: bytes) -> None:
        """Keep the result of a whole run. Raises Unusable."""
        with self._changing(base) as number:
            row = self._listing(number, listing, state), int(time.time()), result
            self._database.execute("INSERT OR REPLACE INTO runs VALUES (?, ?, ?)", row)
            old = "SELECT listing FROM runs ORDER BY made DESC, listing DESC LIMIT -1 OFFSET ?"
            for (listing_id,) in self._all(old, MOST_RUNS):
                self._remove(listing_id)

    def last_used(self, base: bytes) -> int | None:
        """When something was last kept under a base, in seconds of the epoch. Raises Unusable."""
        rows = self._all("SELECT CAST(used AS INTEGER) FROM bases WHERE key = ?", base)
        return rows[0][0] // 1_000_000_000 if rows else None

    def used(self, base: bytes) -> None:
        """Note that what is kept under a base was of use. Raises Unusable."""
        try:
            self._database.execute("UPDATE bases SET used = ? WHERE key = ?", (time.time_ns(), base))
        except (UnicodeDecodeError, sqlite3.Error) as error:
            raise Unusable(str(error)) from error

    def close(self) -> None:
        self._database.close()

    @contextmanager
    def _changing(self, base: bytes) -> Iterator[int]:
        """All changes or none; gives the number of the base. Raises Unusable."""
        try:
            with self._database:
                self._database.execute("BEGIN IMMEDIATE")
                now = time.time_ns()
                self._database.execute(
                    "INSERT INTO bases (key, used) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET used = ?",
                    (base, now, now),
                )
                yield self._one("SELECT id FROM bases WHERE key = ?", base)
        except (UnicodeDecodeError, sqlite3.Error) as error:
            raise Unusable(str(error)) from error

    def _listing(self, base: int, listing: Listing, state: bytes) -> int:
        row = base, os.fsencode("\0".join(listing)), state
        self._database.execute("INSERT OR IGNORE INTO listings (base, records, state) VALUES (?, ?, ?)", row)
        return self._one("SELECT id FROM listings WHERE base = ? AND records = ? AND state = ?", *row)

    def _bound(self, base: int) -> None:
        """Remove the bases that were not used for the longest time, and at last the oldest listings of this one."""
        while self._more_than(self._most):
            oldest = (
                "SELECT listings.id FROM listings JOIN bases ON bases.id = base "
                "ORDER BY base = ?, used, listings.id LIMIT 1"
            )
            self._remove(self._one(oldest, base))
        self._database.execute("DELETE FROM bases WHERE id NOT IN (SELECT base FROM listings)")

    def _remove(self, listing: int) -> None:
        for table, column in (("images", "listing"), ("runs", "listing"), ("listings", "id")):
            self._database.execute(f"DELETE FROM {table} WHERE {column} = ?", (listing,))

    def _more_than(self, most: int) -> bool:
        """Whether there are so many images; they are only counted where there may be."""
        if self._images is None or self._images > most:
            self._images = self._one("SELECT count(*) FROM images")
        return self._images > most

    def _one(self, query: str, *values: object) -> int:
        """The number that a row holds which must be there: an index that is damaged does not lead to it."""
        rows = self._all(query, *values)
        if not rows or not isinstance(rows[0][0], int):
            raise Unusable("a row is missing in the database of kept verdicts")
        return rows[0][0]

    def _all(self, query: str, *values: object) -> list[tuple]:  # type: ignore[type-arg]
        try:
            return self._database.execute(query, values).fetchall()
        except (UnicodeDecodeError, sqlite3.Error) as error:
            raise Unusable(str(error)) from error
