"""Positions of each mark in the two pictures: the crash schedule (time × lines) and the persistence graph.

Coordinates are CSS pixels from the picture's upper left corner, computed from the view alone, so that the same
finding gives the same picture. Renderers draw them; they decide colours and shapes.
"""

from __future__ import annotations

from dataclasses import dataclass

from crashcheck.reports.view.failing_behaviour import GraphView, ScheduleView, StepView

CHAR_PX = 6.6  # widest average of an 11 px label in the fonts that the page asks for
BAND_PX = 100  # above the lanes: names of fences, syncs and marks
LANE_PX = 62
LEFT_PX = 36
WIDTH_MIN = 1072  # the room that the page gives on a wide screen
AFTER_PX = 150
CRASH_WORD_PX = 24
EVENT_CHARS = 24
SLANT = 0.85  # how far a slanted name of an event reaches to the right, as a share of its length
SPREAD_PX = 858  # the columns share this width while they are few
COLUMN_MIN, COLUMN_MAX = 34, 240
AXIS_PX = 26


@dataclass(frozen=True, slots=True)
class Mark:
    """One step in the schedule's picture. `y` is 0 for a step that concerns every lane."""

    step: StepView
    x: int
    y: int
    label: str  # beside the mark, "" where there is no room


@dataclass(frozen=True, slots=True)
class Gap:
    """Steps that are left out at `x`."""

    x: int
    count: int


@dataclass(frozen=True, slots=True)
class Lane:
    """A lane's place. `y`: its upper edge; `middle`: the line that its marks are on."""

    label: str
    y: int
    middle: int
    durable: int
    survived: int
    lost: int


@dataclass(frozen=True, slots=True)
class SchedulePicture:
    """The crash schedule as a picture of `width` × `height`; the crash is the line at `crash_x`.

    `unreached` marks are right of it, before `left_x`, where what is left of each lane is counted.
    """

    width: int
    height: int
    band: int  # upper edge of the first lane
    lane_height: int
    bottom: int  # lower edge of the last lane
    crash_x: int
    left_x: int
    lanes: tuple[Lane, ...]
    marks: tuple[Mark, ...]
    unreached: tuple[Mark, ...]
    gaps: tuple[Gap, ...]


def schedule_picture(view: ScheduleView) -> SchedulePicture:
    """Columns are steps, in program order from left to right; rows are lanes."""
    gaps_before = sum(step.skipped_before > 0 for step in (*view.steps, *view.unreached))
    columns = max(len(view.steps) + len(view.unreached) + gaps_before, 1)
    column = max(COLUMN_MIN, min(COLUMN_MAX, SPREAD_PX // columns))
    lanes = tuple(
        Lane(lane.label, BAND_PX + i * LANE_PX, BAND_PX + i * LANE_PX + 34, lane.durable, lane.survived, lane.lost)
        for i, lane in enumerate(view.lanes)
    )
    bottom = BAND_PX + max(len(lanes), 1) * LANE_PX
    gaps: list[Gap] = []
    marks, end = _marks(view.steps, LEFT_PX, column, lanes, gaps)
    crash_x = end + 14 if marks else LEFT_PX + 14
    unreached, left_x = _marks(view.unreached, crash_x + CRASH_WORD_PX, column, lanes, gaps)
    left_x = left_x + 16 if unreached else crash_x + 16
    return SchedulePicture(
        width=max(left_x - 16 + AFTER_PX, WIDTH_MIN),
        height=bottom + AXIS_PX,
        band=BAND_PX,
        lane_height=LANE_PX,
        bottom=bottom,
        crash_x=crash_x,
        left_x=left_x,
        lanes=lanes,
        marks=marks,
        unreached=unreached,
        gaps=tuple(gaps),
    )


def _marks(
    steps: tuple[StepView, ...], start: int, column: int, lanes: tuple[Lane, ...], gaps: list[Gap]
) -> tuple[tuple[Mark, ...], int]:
    """Marks from `start` to the right, and where they and their slanted names end; adds the gaps among them."""
    marks: list[Mark] = []
    x = start + column // 2
    for step in steps:
        if step.skipped_before:
            gaps.append(Gap(x, step.skipped_before))
            x += column
        if step.lane < 0:
            marks.append(Mark(step, x, 0, _fit(step.label, EVENT_CHARS)))
        else:
            marks.append(Mark(step, x, lanes[step.lane].middle, _beside(step, column)))
        x += column
    reach = [mark.x + int(len(mark.label) * 5.6 * SLANT) for mark in marks if not mark.y]
    return tuple(marks), max(x - column // 2, *reach, 0)


def _fit(text: str, chars: int) -> str:
    return text if len(text) <= chars else text[: max(chars - 1, 1)] + "…"


def _beside(step: StepView, column: int) -> str:
    """An update's name where it fits between its neighbours: whole, else its last field."""
    room = int((column - 4) / CHAR_PX)
    if room < 6 or not step.state:
        return ""
    return step.label if len(step.label) <= room else _fit(step.label.rsplit(".", 1)[-1], room)


NODE_W, NODE_H = 196, 42
LAYER_PX = NODE_W + 118
NODE_GAP = 12
LANE_HEAD = 24
MARGIN_PX = 14
LANE_FOOT = 12


@dataclass(frozen=True, slots=True)
class Box:
    """A node of the graph, by its upper left corner."""

    index: int
    x: int
    y: int
    label: str
    where: str


@dataclass(frozen=True, slots=True)
class Arc:
    """An edge as an SVG path, with its reason at (x, y)."""

    path: str
    x: int
    y: int
    reason: str


@dataclass(frozen=True, slots=True)
class Band:
    """A granule's band behind its nodes."""

    label: str
    y: int
    height: int


@dataclass(frozen=True, slots=True)
class GraphPicture:
    """The persistence graph: bands are granules, columns are layers; `missing` joins the pair that nothing orders."""

    width: int
    height: int
    node_width: int
    bands: tuple[Band, ...]
    boxes: tuple[Box, ...]
    arcs: tuple[Arc, ...]
    missing: Arc | None


def graph_picture(view: GraphView) -> GraphPicture:
    """Every edge points to the right: a node's layer is the longest path to it. Implied edges are not drawn."""
    count = len(view.nodes)
    edges: dict[tuple[int, int], str] = {}
    for edge in view.edges:
        edges.setdefault((edge.source, edge.target), edge.reason)
    layer, order = _layers(count, set(edges))
    forward = {pair: why for pair, why in edges.items() if layer[pair[0]] < layer[pair[1]]}
    drawn = _reduced(order, forward)
    granules = list(dict.fromkeys(node.granule for node in view.nodes))
    bands: list[Band] = []
    boxes: dict[int, Box] = {}
    y = 0
    for granule in granules:
        inside = [i for i in order if view.nodes[i].granule == granule]
        slots: dict[int, int] = {}
        for i in inside:
            slot = slots.get(layer[i], 0)
            slots[layer[i]] = slot + 1
            boxes[i] = Box(
                i,
                MARGIN_PX + layer[i] * LAYER_PX,
                y + LANE_HEAD + slot * (NODE_H + NODE_GAP),
                _fit(view.nodes[i].label, 21),
                _fit(view.nodes[i].where, 25),
            )
        height = LANE_HEAD + max(slots.values()) * (NODE_H + NODE_GAP) - NODE_GAP + LANE_FOOT
        bands.append(Band(granule, y, height))
        y += height + 8
    taken = [(box.x, box.y, box.x + NODE_W, box.y + NODE_H) for box in boxes.values()]
    arcs = tuple(_arc(boxes[a], boxes[b], forward[(a, b)], taken) for a, b in drawn)
    missing = None
    if view.unordered is not None:
        a, b = sorted((boxes[i] for i in view.unordered), key=lambda box: (layer[box.index], box.y))
        missing = _arc(a, b, "nothing orders these", taken, stacked=layer[a.index] == layer[b.index])
    width = MARGIN_PX * 2 + max(layer, default=0) * LAYER_PX + NODE_W
    return GraphPicture(
        max(width, WIDTH_MIN),
        max(y - 8, 0),
        NODE_W,
        tuple(bands),
        tuple(boxes[i] for i in sorted(boxes)),
        arcs,
        missing,
    )


def _layers(count: int, arcs: set[tuple[int, int]]) -> tuple[list[int], list[int]]:
    """Longest-path layers and a topological order; nodes of a cycle, which no model makes, are last, in layer 0."""
    waiting = [sum(target == node for _, target in arcs) for node in range(count)]
    layer = [0] * count
    order: list[int] = []
    ready = [node for node in range(count) if waiting[node] == 0]
    while ready:
        node = ready.pop(0)
        order.append(node)
        for source, target in sorted(arcs):
            if source == node:
                layer[target] = max(layer[target], layer[node] + 1)
                waiting[target] -= 1
                if waiting[target] == 0:
                    ready.append(target)
    rest = [node for node in range(count) if node not in order]
    for node in rest:
        layer[node] = 0
    return layer, order + rest


def _reduced(order: list[int], arcs: dict[tuple[int, int], str]) -> list[tuple[int, int]]:
    """The arcs that no other path implies."""
    below: dict[int, set[int]] = {node: set() for node in order}
    for node in reversed(order):
        for source, target in arcs:
            if source == node:
                below[node] |= {target} | below[target]
    return [
        (a, b)
        for a, b in sorted(arcs)
        if not any(b in below[middle] for source, middle in arcs if source == a and middle != b)
    ]


def _arc(a: Box, b: Box, reason: str, taken: list[tuple[int, int, int, int]], stacked: bool = False) -> Arc:
    """A curve from `a` to `b`; its label takes the first of a few spots that is free, and then occupies it."""
    if stacked:
        x1, y1, x2, y2 = a.x + NODE_W // 2, a.y + NODE_H, b.x + NODE_W // 2, b.y
        bend = ((x1, (y1 + y2) // 2), (x2, (y1 + y2) // 2))
    else:
        x1, y1, x2, y2 = a.x + NODE_W, a.y + NODE_H // 2, b.x, b.y + NODE_H // 2
        pull = min(70, max(20, (x2 - x1) // 2))
        bend = ((x1 + pull, y1), (x2 - pull, y2))
    half = len(reason) * CHAR_PX / 2
    best = None
    for part in (0.5, 0.4, 0.6, 0.3, 0.7, 0.2, 0.8):
        x = _bezier(x1, bend[0][0], bend[1][0], x2, part)
        y = _bezier(y1, bend[0][1], bend[1][1], y2, part) - 4
        spot = (int(x - half), int(y) - 11, int(x + half), int(y) + 3)
        best = best or spot
        if not any(spot[0] < r and left < spot[2] and spot[1] < low and top < spot[3] for left, top, r, low in taken):
            best = spot
            break
    assert best is not None
    taken.append(best)
    path = f"M{x1} {y1}C{bend[0][0]} {bend[0][1]} {bend[1][0]} {bend[1][1]} {x2} {y2}"
    return Arc(path, (best[0] + best[2]) // 2, best[3] - 3, reason)


def _bezier(p0: float, p1: float, p2: float, p3: float, t: float) -> float:
    u = 1 - t
    return u * u * u * p0 + 3 * u * u * t * p1 + 3 * u * t * t * p2 + t * t * t * p3
