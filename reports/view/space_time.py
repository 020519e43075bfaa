"""The space-time diagram of a run of nodes: a line for each node, time to the right, an arrow for each message.

Coordinates are CSS pixels from the picture's upper left corner, computed from the evidence alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from crashcheck.checker.evidence import PENDING, ActionOrder, ActionRow
from crashcheck.reports.view.diagrams import CHAR_PX
from crashcheck.reports.view.text import line

COLUMN_PX = 58
LANE_PX = 84
TOP_PX = 46
NAME_CHARS = 24
LABEL_CHARS = 16
RIGHT_PX = 40
WIDTH_MIN = 1072  # the room that the page gives on a wide screen

_LABEL_SHARE, _LABEL_BEFORE_PX, _LABEL_ABOVE_PX = 0.62, 48, 18  # of an arrow before its label; from there to its end

_MESSAGES = ("deliver", "lose", "duplicate", PENDING)
_SHAPES = {
    **dict.fromkeys(("timer", "lapse"), "clock"),
    **dict.fromkeys(("crash-process", "crash-machine"), "crash"),
    **dict.fromkeys(("cut", "reset"), "cross"),
}


@dataclass(frozen=True, slots=True)
class DrawnEvent:
    """What happens at a node. `shape`: "dot", "clock", "crash", "cross", "none"; `tag`: "A" or "B" of the pair."""

    number: int
    x: int
    y: int
    shape: str
    tag: str
    label: str
    label_y: int
    title: str


@dataclass(frozen=True, slots=True)
class Arrow:
    """A message from where it was sent to where it arrived, or was lost, or would arrive. `label`: at its middle."""

    x1: int
    y1: int
    x2: int
    y2: int
    fate: str  # "delivered" | "lost" | "pending"
    label: str
    label_x: int
    label_y: int


@dataclass(frozen=True, slots=True)
class NodeLine:
    """A node's line; `gaps` are the stretches, as pairs of places, in which the node is down."""

    name: str
    y: int
    gaps: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class SpaceTime:
    """The picture; `left_out` rows are before its first."""

    width: int
    height: int
    left: int
    left_out: int
    lines: tuple[NodeLine, ...]
    arrows: tuple[Arrow, ...]
    events: tuple[DrawnEvent, ...]
    ends: str  # what is wrong, at the right end
    end_x: int
    alt: str


def space_time(order: ActionOrder, most_rows: int) -> SpaceTime:
    """The last `most_rows` rows of a run as a picture."""
    first = max(0, len(order.rows) - most_rows)
    left = 24 + int(CHAR_PX * max((len(line(name, NAME_CHARS)) for name in order.nodes), default=1))
    end_x = left + (len(order.rows) - first + 1) * COLUMN_PX

    def x_of(row: int) -> int:
        return left + (row - first) * COLUMN_PX + COLUMN_PX // 2 if row >= first else left

    def y_of(node: int) -> int:
        return TOP_PX + max(node, 0) * LANE_PX

    rows = list(enumerate(order.rows))[first:]
    return SpaceTime(
        width=max(end_x + RIGHT_PX, WIDTH_MIN),
        height=TOP_PX + len(order.nodes) * LANE_PX - LANE_PX // 3,
        left=left,
        left_out=first,
        lines=tuple(
            NodeLine(line(name, NAME_CHARS), y_of(node), tuple(_down(order.rows, node, x_of, end_x)))
            for node, name in enumerate(order.nodes)
        ),
        arrows=tuple(_arrow(at, row, x_of, y_of) for at, row in rows if row.kind in _MESSAGES),
        events=tuple(_event(at, row, x_of(at), y_of(row.node)) for at, row in rows),
        ends=line(order.ending, 80),
        end_x=end_x,
        alt=f"{len(order.nodes)} nodes, {line(order.when, 80)}; then {line(order.ending, 120)}",
    )


def _down(rows: Sequence[ActionRow], node: int, x_of: Callable[[int], int], end_x: int) -> Iterator[tuple[int, int]]:
    """Stretches in which a node is not there: from a crash, or its end, to its next start."""
    since = -1
    for at, row in enumerate(rows):
        if row.node != node or row.kind in ("lose", PENDING):
            continue
        if row.kind.startswith("crash") or row.ended:
            since = at
        elif since >= 0 and row.kind == "restart":
            yield x_of(since), x_of(at)
            since = -1
    if since >= 0:
        yield x_of(since), end_x


def _arrow(at: int, row: ActionRow, x_of: Callable[[int], int], y_of: Callable[[int], int]) -> Arrow:
    x1, y1, x2, y2 = x_of(row.sent) if row.sent >= 0 else x_of(-1), y_of(row.peer), x_of(at), y_of(row.node)
    fate = {"lose": "lost", PENDING: "pending"}.get(row.kind, "delivered")
    if fate != "delivered":  # it does not arrive
        x2, y2 = x1 + (x2 - x1) * 3 // 4, y1 + (y2 - y1) * 3 // 4
    # Near its end: arrows of messages that were sent long ago have one beginning, and each an end of its own.
    share = max(_LABEL_SHARE, 1 - _LABEL_BEFORE_PX / max(abs(x2 - x1), 1))
    share = min(share, max(_LABEL_SHARE, 1 - _LABEL_ABOVE_PX / max(abs(y2 - y1), 1)))
    return Arrow(
        *(x1, y1, x2, y2, fate, line(row.label or row.data, LABEL_CHARS)),
        int(x1 + (x2 - x1) * share) + 5,
        int(y1 + (y2 - y1) * share) - 4,
    )


def _event(at: int, row: ActionRow, x: int, y: int) -> DrawnEvent:
    shape = _SHAPES.get(row.kind, "none" if row.kind in ("lose", PENDING) else "dot")
    thread = row.what.partition(" of ")[0] if row.kind == "thread" else ""
    more = [f"its disk {line(row.disk, 200)}"] * bool(row.disk)
    more += [f"prints {line(row.printed, 120)}"] * bool(row.printed) + [row.ended] * bool(row.ended)
    more += [f"sent by {line(row.sender, 120)}"] * bool(row.sender)
    return DrawnEvent(
        number=at + 1,
        x=x,
        y=y,
        shape=shape,
        tag={"first": "A", "second": "B"}.get(row.role, ""),
        label=line(row.ended or row.disk.partition(" updates")[0] or thread, LABEL_CHARS + 6),
        label_y=y + (34 if row.ended else 48),  # apart: what a disk kept is often followed by an end
        title="; ".join([f"{at + 1}: {line(row.what, 200)}", *more]),
    )
