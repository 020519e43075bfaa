"""Reads what a program that learns or is guarded saw of its threads: the log that runtime/guard writes (guard.h)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from crashcheck.analyzer.compile.facts import UnitFacts, decode
from crashcheck.errors import CrashcheckError
from crashcheck.wording import listed

UNOBSERVED = "accesses of inline assembly and rare vector instructions are not observed"
_LISTED = 8  # places, which may be hundreds
MAGIC = 0x6472617567434343
VERSION = 5
HEADER_BYTES = 4096
HEADER = np.dtype(
    [
        ("magic", "<u8"),
        ("version", "<u4"),
        ("rows", "<u4"),
        *((name, "<u8") for name in ("facts_bytes", "facts_used", "order")),
        *((name, "<u8") for name in ("rows_lost", "facts_lost", "unseen", "taken_over", "unforgotten")),
        *((name, "<u8") for name in ("learned", "otherwise")),
    ]
)
ROW = np.dtype(
    [
        *(("claimed", "<u4"), ("written", "<u4"), ("site", "<u8"), ("before", "<u8"), ("kind", "<u4")),
        *(("thread", "<u4"), ("order", "<u8"), ("count", "<u8")),
        *(("resolved", "<u4"), ("unresolved", "<u4"), ("stalled_ns", "<u8")),
    ]
)


class ObservationKind(IntEnum):
    """enum cc_guard_kind."""

    REMOTE = 1
    SAME_THREAD = 2
    VIOLATION = 3
    UNTRAINED = 4
    ADDRESSED = 5


@dataclass(frozen=True, slots=True, eq=False)
class Log:
    """What was observed: rows of ROW in the order in which they were first made, and the facts of the units.

    `lost`: what could not be observed exactly, in words; empty if nothing. `learned`: the digest of the sets that the
    program was guarded with, 0 if it was not guarded.
    """

    rows: NDArray[np.void]
    units: tuple[UnitFacts, ...]
    lost: tuple[str, ...]
    learned: int

    @property
    def not_exact(self) -> tuple[str, ...]:
        """`lost`, and where the program accesses memory in ways that are not observed, in words."""
        places = {one.position.file + f":{one.position.line}" for unit in self.units for one in unit.not_understood}
        return self.lost + ((f"{UNOBSERVED}: {listed(sorted(places), _LISTED)}",) if places else ())

    def of(self, kind: ObservationKind) -> NDArray[np.void]:
        """The rows of one kind."""
        rows: NDArray[np.void] = self.rows[self.rows["kind"] == kind]
        return rows


def read_log(path: Path) -> Log:
    """Raises CrashcheckError guard-log, facts-corrupt or facts-version."""
    try:
        size = path.stat().st_size
        if size < HEADER_BYTES:
            raise _bad(path, "it is too short")
        with open(path, "rb") as stream:
            header = np.frombuffer(stream.read(HEADER.itemsize), HEADER)[0]
            if header["magic"] != MAGIC:
                raise _bad(path, "it is no log of a guarded program")
            if header["version"] != VERSION:
                raise _bad(path, f"it has version {header['version']}; this crashcheck reads version {VERSION}")
            if size < HEADER_BYTES + int(header["rows"]) * ROW.itemsize:
                raise _bad(path, "it is too short")
            stream.seek(HEADER_BYTES)
            rows = np.frombuffer(stream.read(int(header["rows"]) * ROW.itemsize), ROW)
            facts = stream.read(min(int(header["facts_used"]), int(header["facts_bytes"])))
    except OSError as error:
        raise _bad(path, str(error.strerror)) from error
    rows = rows[rows["written"] != 0]
    units = {unit.key: unit for unit in decode(facts, str(path), torn=True)}
    lost = tuple(
        f"{int(header[name])} {what}"
        for name, what in (
            ("rows_lost", "observations: the table is full"),
            ("facts_lost", "units: no room for their facts"),
            ("unseen", "accesses: no memory to follow them"),
            ("taken_over", "locks of variables, taken from threads that never gave them back"),
            ("unforgotten", "freed blocks of an allocator without malloc_usable_size, whose accesses still count"),
            ("otherwise", "units, guarded with other sets than the rest of the program"),
        )
        if header[name]
    )
    return Log(rows[np.argsort(rows["order"], kind="stable")], tuple(units.values()), lost, int(header["learned"]))


def _bad(path: Path, why: str) -> CrashcheckError:
    return CrashcheckError("guard-log", f"{path} cannot be read: {why}.", "CRASHCHECK_GUARD=log=FILE writes one.")
