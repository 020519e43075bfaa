"""Names and properties of the crash models: what makes updates durable, and what persists as one unit."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Family:
    """Properties of some models, so that nobody else asks for their names."""

    by_sync: bool  # fsync and msync make updates durable; flushes and fences do nothing
    granule: str  # what persists in order
    granule_bytes: int  # unless `tear` makes it smaller
    stops: bool  # extensions of a file persist one after the other, and each up to any block boundary
    names: bool = False  # names are updates of their own, and a file is an inode: of traces of system calls
    journal: bool = False  # names and sizes persist in one order
    tears: bool = True  # `tear` may make what persists in order smaller; not where a block is never overwritten


_MEMORY = Family(by_sync=False, granule="line", granule_bytes=64, stops=False)
_FILES = Family(by_sync=True, granule="page", granule_bytes=4096, stops=True)
_FOLDERS = Family(by_sync=True, granule="block", granule_bytes=4096, stops=True, names=True)
_JOURNALED = Family(by_sync=True, granule="block", granule_bytes=4096, stops=True, names=True, journal=True)

FAMILIES = {
    "px86": _MEMORY,
    "eadr": _MEMORY,
    "page-cache": _FILES,
    "ext4": _JOURNALED,
    "ext4-strict": replace(_JOURNALED, stops=False),
    "posix": _FOLDERS,
    "ext4-writeback": _JOURNALED,
    "xfs": replace(_JOURNALED, stops=False),
    "btrfs": replace(_JOURNALED, stops=False, tears=False),
}


def family_of(model: str) -> Family:
    """Of a model, or of what a finding needs, as in "page-cache tear=512"; of an unknown model that of memory."""
    return FAMILIES.get(model.partition(" ")[0], _MEMORY)
