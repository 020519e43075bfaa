"""The failing behaviour of one finding as a reader steps through it: its crash schedule and its persistence graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from crashcheck.checker.evidence import CrashSchedule, ScheduleStep
from crashcheck.checker.results import GraphEdge, GraphNode, GroupRow, Location
from crashcheck.reports.view import sentences
from crashcheck.reports.view.numbers import bytes_text
from crashcheck.reports.view.places import same_site, stack_text, where_text
from crashcheck.reports.view.text import line, valid

STEPS_MAX = 80
LANES_MAX = 14
NODES_MAX = 24
STEP_STACK_MAX = 3
LOOSE = frozenset({"persisted", "lost"})  # what the crash decided
UNREACHED = "unreached"  # the state of a step after the crash; only culprits and the steps between them are listed
UPDATES = LOOSE | {"durable", UNREACHED}
_BEFORE_CRASH = UPDATES - {UNREACHED}
LINE_BYTES = 64
_STEPS_NAMED = 6  # of the steps that one flush or fence has an effect on
_KEPT, _NOT_KEPT = ("persisted", "durable"), ("lost", UNREACHED)
GAP_EVENTS = 3  # fewer events between two steps are definitions (stacks, files) as a rule, and no gap is shown


@dataclass(frozen=True, slots=True)
class StepView:
    """One step of the schedule. `number` counts the steps of the finding from 1, left-out ones included."""

    number: int
    what: str  # as in ScheduleStep
    event: int  # index in the trace
    state: str  # "durable" | "persisted" | "lost" | "unreached" | ""
    fate: str  # how `state` is called
    tag: str  # "A", "B" or ""
    label: str  # short: "entry.valid", "sfence"
    detail: str
    thread: int
    lane: int  # index into ScheduleView.lanes; -1 for a step that concerns all
    place: str  # "line 12 +8, 4 B", "" if it touches no file
    where: str
    function: str
    source: str
    stack: tuple[str, ...]
    skipped_before: int  # trace events that are not shown just before this one
    pending_at: int  # of an update: the shown step, by index, that flushes it or begins to sync it; -1 if none does
    durable_at: int  # the shown step by which it is durable; -1 if it never is before the crash
    effect: str  # of a flush, fence or sync: what it does to which steps; "" if nothing
    file: str  # of the source, as in PlaceView; "" if unknown
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class LaneView:
    """One granule of one file, with what the crash left of its updates, those of left-out steps included."""

    label: str
    durable: int
    survived: int
    lost: int


@dataclass(frozen=True, slots=True)
class ScheduleView:
    """The crash schedule: `steps` in program order up to the crash, `unreached` the steps after it."""

    lanes: tuple[LaneView, ...]
    steps: tuple[StepView, ...]
    unreached: tuple[StepView, ...]
    total: int
    threads: bool  # more than one thread takes part
    alt: str  # the picture in a sentence


@dataclass(frozen=True, slots=True)
class NodeView:
    """An update of the failing behaviour."""

    label: str
    where: str
    state: str
    fate: str
    tag: str
    granule: str


@dataclass(frozen=True, slots=True)
class EdgeView:
    """`source` persists before `target` (indices into GraphView.nodes)."""

    source: int
    target: int
    reason: str


@dataclass(frozen=True, slots=True)
class GraphView:
    """The persistence graph of the failing behaviour. `unordered`: the pair that no path orders, or None."""

    nodes: tuple[NodeView, ...]
    edges: tuple[EdgeView, ...]
    unordered: tuple[int, int] | None
    total: int
    alt: str


def culprits(location: Location, crash: CrashSchedule) -> dict[int, str]:
    """The steps of the culprits: by role, else the last non-durable one at each site, else the last."""
    tags: dict[int, str] = {}
    for tag, role, place in (("A", "location", location), ("B", "other", crash.other)):
        left = {i: step for i, step in enumerate(crash.schedule) if i not in tags}
        named = [i for i, step in left.items() if step.role == role]
        found = named or _at_site({i: step for i, step in left.items() if step.state in UPDATES}, place)
        found = _with_fate(crash, tag, {i: left[i].state for i in found})
        if found:
            tags[found[-1]] = tag
    return tags


def _at_site(updates: Mapping[int, ScheduleStep | GraphNode], place: Location | None) -> list[int]:
    """The keys of the updates that were made at a place: of those that are not durable, if there are any."""
    at = [key for key, update in updates.items() if same_site(update.location, place)]
    return [key for key in at if updates[key].state != "durable"] or at


def _with_fate(crash: CrashSchedule, tag: str, states: Mapping[int, str]) -> list[int]:
    """Of the pieces of a store, which may be lost in part, those with the fate that the finding is about, if any."""
    fates = ("persisted", "durable") if tag == "A" and crash.other is not None else ("lost", UNREACHED)
    return [key for key, state in states.items() if state in fates] or list(states)


def _chosen(crash: CrashSchedule, tags: dict[int, str], limit: int) -> list[int]:
    """The steps worth showing where there are too many: culprits, what was lost or survived, then the latest."""

    def weight(index: int) -> tuple[int, int]:
        step = crash.schedule[index]
        rank = 0 if index in tags else 1 if step.state in LOOSE else 3 if step.state == UNREACHED else 2
        return rank, -index

    return sorted(sorted(range(len(crash.schedule)), key=weight)[:limit])


def _label(step: ScheduleStep) -> str:
    if step.state in UPDATES and step.location is not None and step.location.variable:
        return line(step.location.variable, 40)
    head = step.detail.split(" = ")[0]
    return line(head or step.what, 40)


def _lane_name(model: str, step: ScheduleStep, files: int) -> str:
    unit = f"{sentences.granule_name(model)} {step.granule}" if step.granule >= 0 else "name and size"
    return f"{unit} · {line(step.file, 60)}" if files > 1 else unit


def schedule_view(crash: CrashSchedule, model: str, tags: dict[int, str], limit: int) -> ScheduleView:
    """At most `limit` steps of the schedule; `tags` are the culprits' letters by step."""
    steps = crash.schedule
    chosen = _chosen(crash, tags, limit)
    files = len({step.file for step in steps if step.file})
    # Lanes are given to the culprits first, then to what was lost or survived, then as long as there are some.
    lane_of, labels = _lanes(crash, model, (*tags, *(i for i in chosen if steps[i].state in LOOSE), *chosen), files)
    views: list[StepView] = []
    previous = steps[0].event - 1 if steps else 0
    for i in chosen:
        between = steps[i].event - previous - 1
        views.append(
            _step(steps[i], model, i, tags.get(i, ""), lane_of[i], between if between >= GAP_EVENTS else 0, files)
        )
        previous = steps[i].event
    end = next((at for at, view in enumerate(views) if view.state == UNREACHED), len(views))
    views = [*_with_durability([steps[i] for i in chosen[:end]], views[:end]), *views[end:]]
    tally = Counter((lane, step.state) for lane, step in zip(lane_of, steps, strict=True))
    lanes = tuple(
        LaneView(label, tally[i, "durable"], tally[i, "persisted"], tally[i, "lost"]) for i, label in enumerate(labels)
    )
    counts = Counter(step.state for step in steps)
    granules = len({key for step in steps if (key := _lane_key(step)) is not None})
    alt = (
        f"{sentences.plural(len(steps) - counts[UNREACHED], 'step')} on {sentences.plural(granules, 'granule')} "
        f"before the crash: {counts['durable']} durable, {counts['persisted']} survived, {counts['lost']} lost."
    )
    threads = len({step.thread for step in steps}) > 1
    return ScheduleView(lanes, tuple(views[:end]), tuple(views[end:]), len(steps), threads, alt)


def _lanes(crash: CrashSchedule, model: str, preferred: Sequence[int], files: int) -> tuple[list[int], list[str]]:
    """The lane of each step, -1 for all lanes, and the lanes' labels; `preferred`: steps that get a lane first.

    Granules beyond LANES_MAX share one more lane.
    """
    keys = [_lane_key(step) for step in crash.schedule]
    everywhere = [key for key in dict.fromkeys(keys) if key is not None]
    own = [key for key in dict.fromkeys(keys[i] for i in preferred) if key is not None][:LANES_MAX]
    order = [key for key in everywhere if key in own]
    names = {key: _lane_name(model, step, files) for key, step in zip(keys, crash.schedule, strict=True)}
    labels = [names[key] for key in order]
    others = len(everywhere) - len(order)
    if others:
        labels.append(sentences.plural(others, f"other {sentences.granule_word(model)}"))
    return [-1 if key is None else order.index(key) if key in own else len(order) for key in keys], labels


def _with_durability(steps: Sequence[ScheduleStep], views: Sequence[StepView]) -> list[StepView]:
    """`views` of `steps`, which end at the crash, with the step at which each update becomes pending and durable.

    Durable is by the model (ScheduleStep.durable_from), at the first step shown that is not earlier; the crash
    itself counts as a step after the last. On its way is an update from the first flush of its line, or sync of its
    file, that is shown; a non-temporal store is from the start.
    """
    end = len(steps)
    durable = [_durable(steps, at) for at in range(end)]
    pending = [_pending(steps, at, until=by if by >= 0 else end) for at, by in enumerate(durable)]
    out = []
    for at, view in enumerate(views):
        started = [views[i].number for i in range(end) if pending[i] == at != i]
        made = [views[i].number for i in range(end) if durable[i] == at != i]
        effect = [f"on the way: {_numbers(started)}"] if started else []
        effect += [f"durable now: {_numbers(made)}"] if made else []
        out.append(replace(view, pending_at=pending[at], durable_at=durable[at], effect="; ".join(effect)))
    return out


def _durable(steps: Sequence[ScheduleStep], at: int) -> int:
    step = steps[at]
    if step.state not in _BEFORE_CRASH or (step.state != "durable" and step.durable_from < 0):
        return -1
    if step.durable_from < 0:
        return len(steps)
    return next((i for i in range(at, len(steps)) if steps[i].event >= step.durable_from - 1), len(steps))


def _pending(steps: Sequence[ScheduleStep], at: int, until: int) -> int:
    step = steps[at]
    if step.state not in _BEFORE_CRASH:
        return -1
    if step.detail.endswith("(non-temporal)"):
        return at
    return next((i for i in range(at + 1, until) if _starts(steps[i], step)), -1)


def _starts(step: ScheduleStep, update: ScheduleStep) -> bool:
    if step.what == "flush":
        first, last = step.offset // LINE_BYTES, (step.offset + max(step.size, 1) - 1) // LINE_BYTES
        return step.file == update.file and first <= update.granule <= last
    return step.what == "sync" and step.detail.endswith("begins") and step.file in ("", update.file)


def _numbers(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:_STEPS_NAMED]))
    return f"{shown} and {len(numbers) - _STEPS_NAMED} more" if len(numbers) > _STEPS_NAMED else shown


def _lane_key(step: ScheduleStep) -> tuple[str, int] | None:
    """The granule that a step touches; None for what concerns them all, a sync of one file among it."""
    if step.state in UPDATES or (step.what == "flush" and step.granule >= 0):
        return step.file, step.granule
    return None


def _step(step: ScheduleStep, model: str, position: int, tag: str, lane: int, skipped: int, files: int) -> StepView:
    place = ""
    if step.file:
        name = _lane_name(model, step, files)
        place = f"{name}, {bytes_text(step.size)} at {step.offset:#x}" if step.size else name
    where = step.location
    return StepView(
        number=position + 1,
        what=line(step.what, 20),
        event=step.event,
        state=step.state if step.state in UPDATES else "",
        fate=sentences.FATE.get(step.state, ""),
        tag=tag,
        label=_label(step),
        detail=line(step.detail, 160),
        thread=step.thread,
        lane=lane,
        place=place,
        where=where_text(where),
        function=line(where.function, 80) if where else "",
        source=line(where.text, 160) if where else "",
        stack=stack_text(where, STEP_STACK_MAX) if where else (),
        skipped_before=skipped,
        pending_at=-1,
        durable_at=-1,
        effect="",
        file=valid(where.file) if where else "",
        line=where.line if where else 0,
        column=where.column if where and where.text.isascii() else 0,
    )


def group_graph(row: GroupRow, model: str) -> GraphView | None:
    """The graph of a group's representative, whose updates have no fate; None where it has none."""
    if not row.nodes:
        return None
    return _graph(row.nodes[:NODES_MAX], row.edges, model, {}, row.updates, max(row.updates, len(row.nodes)))


def _edges(kept: Sequence[GraphNode], edges: Sequence[GraphEdge]) -> tuple[EdgeView, ...]:
    position = {node.id: new for new, node in enumerate(kept)}
    return tuple(
        EdgeView(*edge)
        for edge in sorted(
            {
                (position[e.source], position[e.target], line(e.reason, 24))
                for e in edges
                if e.source in position and e.target in position and e.source != e.target
            }
        )
    )


def graph_view(location: Location, crash: CrashSchedule, model: str) -> GraphView | None:
    """The graph of the finding's updates, the culprits always among them; None where it has none."""
    if not crash.nodes:
        return None

    def rank(index: int) -> tuple[int, int]:
        node = crash.nodes[index]
        culprit = same_site(node.location, location) or same_site(node.location, crash.other)
        return (0 if culprit else 1 if node.state in ("persisted", "lost") else 2), index

    kept = [crash.nodes[i] for i in sorted(sorted(range(len(crash.nodes)), key=rank)[:NODES_MAX])]
    tags: dict[int, str] = {}
    for tag, place in (("A", location), ("B", crash.other)):
        at = _at_site({i: node for i, node in enumerate(kept) if i not in tags}, place)
        found = _with_fate(crash, tag, {i: kept[i].state for i in at})
        if found:
            tags[found[-1]] = tag
    return _graph(kept, crash.edges, model, tags, len(crash.nodes), len(crash.nodes))


def _graph(
    kept: Sequence[GraphNode], edges: Sequence[GraphEdge], model: str, tags: Mapping[int, str], updates: int, total: int
) -> GraphView:
    """The graph of the nodes in `kept`; `tags` are the culprits' letters, between which it names a missing order."""
    nodes = tuple(
        NodeView(
            line(node.label, 60),
            where_text(node.location),
            node.state if node.state in UPDATES else "",
            sentences.FATE.get(node.state, ""),
            tags.get(at, ""),
            f"{sentences.granule_name(model)} {node.granule}" if node.granule >= 0 else "name and size",
        )
        for at, node in enumerate(kept)
    )
    shown = _edges(kept, edges)
    arcs = [(edge.source, edge.target) for edge in shown]
    one, other = sorted(tags) if len(tags) == 2 else (0, 0)
    ordered = _reaches(arcs, one, other) or _reaches(arcs, other, one)  # of each node with itself
    order = sentences.plural(len(edges), "rule that orders them", "rules that order them")
    alt = f"{sentences.plural(updates, 'update')}, {order}."
    return GraphView(nodes, shown, None if ordered else (one, other), total, alt)


def _reaches(arcs: list[tuple[int, int]], start: int, goal: int) -> bool:
    seen, todo = {start}, [start]
    while todo:
        here = todo.pop()
        for source, target in arcs:
            if source == here and target not in seen:
                seen.add(target)
                todo.append(target)
    return goal in seen
