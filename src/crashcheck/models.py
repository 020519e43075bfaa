"""What other rooms ask of a model: what makes its updates durable, and what persists as one unit."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Family:
    """Properties of some models, so that nobody else asks for their names."""

    by_sync: bool  # fsync and msync make updates durable; flushes and fences do nothing
    granule: str  # what persists in order
    granule_bytes: int  # unless `tear` makes it smaller
    stops: bool  # an extension of a file may persist up to any block boundary


_MEMORY = Family(by_sync=False, granule="line", granule_bytes=64, stops=False)
_FILES = Family(by_sync=True, granule="page", granule_bytes=4096, stops=True)

FAMILIES = {
    "px86": _MEMORY,
    "eadr": _MEMORY,
    "page-cache": _FILES,
}


def family_of(model: str) -> Family:
    """Of a model, or of what a finding needs, as in "page-cache tear=512"; of an unknown model that of memory."""
    return FAMILIES.get(model.partition(" ")[0], _MEMORY)
