"""The smallest bug: a flag that is persisted before the value that it declares valid, as a script of events."""

from __future__ import annotations

from support.checked_worlds import place
from support.tracing import TraceBuilder


def persist(t: TraceBuilder, *offsets: int) -> None:
    for offset in offsets:
        t.clwb("p", offset)
    t.sfence()


VALUE, VALID = place(40, "entry.value"), place(42, "entry.valid")


def put_flag_first(t: TraceBuilder, slots: int = 3) -> None:
    """Each slot: value (site 1) and flag (site 2) in lines of their own; the flag is persisted first."""
    for slot in range(slots):
        at = slot * 256
        t.begin(slot + 1)
        t.site = 1
        t.store("p", at, 8, 7)
        t.site = 2
        t.store("p", at + 64, 8, 1)
        t.site = 0
        persist(t, at + 64)
        persist(t, at)
        t.end(slot + 1)


def two_steps(t: TraceBuilder) -> None:
    t.begin(1)
    for site, offset in ((1, 0), (2, 64)):
        t.site = site
        t.store("p", offset, 8, 5)
        t.site = 0
        persist(t, offset)
    t.end(1)


STEPS = {1: place(10, "a"), 2: place(12, "b")}
