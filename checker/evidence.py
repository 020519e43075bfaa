"""The kinds of evidence: a crash, a crash during recovery, a reopen without a crash, an order of actions of nodes.

Another search adds its own: a subclass of `Evidence` with a renderer (reports/view/evidence).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from crashcheck.checker.results import HALF_STORE, Count, Evidence, Fate, GraphEdge, GraphNode, Index, Level, Location

Role = Annotated[str, Meta(pattern="^(location|other)?$")]
PENDING = "pending"  # an action that might have come next; it is last
REOPENED = "is not needed: the driver is closed and reopened after "


@dataclass(frozen=True, slots=True)
class ScheduleStep:
    """One update near the crash point, in program order, and whether it persisted."""

    event: Count  # index in the trace
    thread: Count
    what: str  # "store" | "write" | "flush" | "fence" | "sync" | "truncate" | "create" | "mark" | "output"
    state: Fate  # "durable" | "persisted" | "lost" | "unreached" (the crash precedes it) | "" (not an update)
    detail: str  # "entry.valid = 01 00 00 00", "clwb", "sfence", "operation 3 begins"
    file: str  # watched file, relative to the pool
    offset: Count
    size: Count
    granule: Index  # cache line or page number within the file; -1 if none
    location: Location | None
    role: Role = ""  # "location" | "other": the finding's culprits
    durable_from: Index = -1  # an update: a crash before this event, or a later one, finds it durable; -1: none does


@dataclass(frozen=True, slots=True)
class CrashSchedule(Evidence):
    """A crash state on which the check fails: the blamed pair of updates, and what persisted around them."""

    other: Location | None  # the other store of the pair; the first is the finding's own place
    crash_point: str  # "before the fence at hash.c:44, in operation 3; 2 operations acknowledged"
    crash_location: Location | None
    schedule: tuple[ScheduleStep, ...]
    nodes: tuple[GraphNode, ...]
    edges: tuple[GraphEdge, ...]

    @property
    def summary(self) -> str:
        return self.crash_point

    @property
    def blamed(self) -> tuple[Location, ...]:
        return () if self.other is None else (self.other,)

    @property
    def places(self) -> tuple[Location, ...]:
        steps = (step.location for step in self.schedule)
        return tuple(place for place in (self.other, self.crash_location, *steps) if place is not None)

    def level(self, model: str) -> Level:
        """A note if no processor documents that such a crash can happen; a warning if it needs a rarer crash than the
        model's plain one."""
        if HALF_STORE in model.split():
            return "note"
        return "warning" if "tear=" in model or "files=posix" in model else "error"


@dataclass(frozen=True, slots=True)
class RecoveryCrash(CrashSchedule):
    """The same of the check's own run on a crash image: a second crash, during recovery."""

    def level(self, model: str) -> Level:
        return "note" if CrashSchedule.level(self, model) == "note" else "warning"


@dataclass(frozen=True, slots=True)
class CleanReopen(Evidence):
    """What a driver prints changes if it is closed and reopened after one of its operations, without any crash."""

    after: str  # "operation 3 (put 7)"
    commands: str  # show it by hand, with the files as they are before the workload in a folder POOL

    @property
    def summary(self) -> str:
        return REOPENED + self.after


@dataclass(frozen=True, slots=True)
class ActionRow:
    """One action of a run of several nodes, in the order in which they happened."""

    kind: str  # "deliver", "timer", "crash-process" … (runtime/nodes/actions.py), or PENDING
    node: Index  # on which it acts
    peer: Index  # the sender of a message, the other end of a link; -1 if there is none
    what: str  # "`prepare` from n0 to n1 is delivered"
    data: str  # the first bytes of the message, after its name if they are no text
    sent: Index  # the row of the action that sent it; -1 if it is no message
    sender: str  # the call that sent it, where it is known
    printed: str  # by the node during it
    ended: str  # "ended with status 1", or ""
    role: Annotated[str, Meta(pattern="^(first|second)?$")] = ""  # of the pair whose order matters
    disk: str = ""  # of a restart after a power failure: "kept 1 of 2 updates"
    label: str = ""  # of a message in a picture; "": its first bytes


@dataclass(frozen=True, slots=True)
class ActionOrder(Evidence):
    """An order of messages, time-outs and failures after which something is wrong."""

    nodes: tuple[str, ...]  # their names
    rows: tuple[ActionRow, ...]
    ending: str  # what is wrong: "n2 ends with status 1"
    when: str  # "9 actions, 1 of them failures"
    checked: bool = False  # whether a check of the nodes' state shows it

    @property
    def summary(self) -> str:
        return f"after {self.when}"

    @property
    def outcome(self) -> str:
        return "" if self.checked else self.ending
