"""A run as a reader sees it: plain strings and numbers, chosen once, for every renderer."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Literal

from crashcheck.checker.result import Finding, Location, RunResult, ScheduleStep
from crashcheck.reports import words
from crashcheck.reports.excerpts import Sources, around
from crashcheck.reports.numbers import bytes_text, human, percent, seconds_text
from crashcheck.reports.text import block, line

STEPS_ALL_FINDINGS = 2400  # schedule steps shown in one report; keeps 100 findings under 2 MiB of HTML
STEPS_MIN, STEPS_MAX = 20, 80
LANES_MAX = 14
NODES_MAX = 24
STACK_MAX = 8
CONTEXT_LINES = 2
UPDATES = frozenset({"durable", "persisted", "lost"})

Status = Literal["clean", "partial", "findings"]


@dataclass(frozen=True, slots=True)
class FactView:
    """One labelled figure; `note` says how to read it."""

    label: str
    value: str
    note: str = ""
    tone: str = ""  # "bad" | "warn" | "": how a renderer may colour it


@dataclass(frozen=True, slots=True)
class SourceLine:
    """One line of source. `hit` marks the line that the place is at."""

    number: int
    text: str
    hit: bool


@dataclass(frozen=True, slots=True)
class PlaceView:
    """A place in the source with its lines and its callers."""

    tag: str  # "A", "B": the same letter marks it in the pictures; "" elsewhere
    role: str  # "survived", "lost", "durable", or what the place is
    where: str  # "hash.c:42"
    function: str
    variable: str
    lines: tuple[SourceLine, ...]
    stack: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StepView:
    """One step of the schedule. `number` counts the steps of the finding from 1, left-out ones included."""

    number: int
    what: str  # as in ScheduleStep
    state: str  # "durable" | "persisted" | "lost" | ""
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
    skipped_before: int  # steps left out just before this one


@dataclass(frozen=True, slots=True)
class LaneView:
    """One granule of one file, with what the crash left of it."""

    label: str
    kept: int
    lost: int


@dataclass(frozen=True, slots=True)
class ScheduleView:
    """The crash schedule: steps in program order, up to the crash."""

    lanes: tuple[LaneView, ...]
    steps: tuple[StepView, ...]
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


@dataclass(frozen=True, slots=True)
class FindingView:
    """One finding as it is told."""

    number: int
    id: str
    kind: str
    kind_title: str
    kind_sentence: str
    model: str
    model_sentence: str
    message: str
    places: tuple[PlaceView, ...]
    crash_point: str
    crash_place: PlaceView | None
    story: tuple[str, ...]
    outcome: str
    output: tuple[str, ...]
    output_cut: str  # says that the output is not whole, or ""
    replay: str
    states: str
    notes: tuple[str, ...]
    uncertain: str
    schedule: ScheduleView
    graph: GraphView | None


@dataclass(frozen=True, slots=True)
class RunView:
    """A whole report."""

    status: Status
    headline: str
    scope: str
    caveats: tuple[str, ...]
    counts: tuple[FactView, ...]
    trace: tuple[FactView, ...]
    run: tuple[FactView, ...]
    findings: tuple[FindingView, ...]
    uncertain: tuple[FindingView, ...]
    not_instrumented: tuple[FactView, ...]
    unmodelled: tuple[str, ...]
    warnings: tuple[str, ...]
    version: str


def build_view(result: RunResult, sources: Sources | None = None) -> RunView:
    """The view of a run; `sources` (see `excerpts.read_sources`) adds the lines around each place."""
    told = len(result.findings) + len(result.uncertain)
    steps = max(STEPS_MIN, min(STEPS_MAX, STEPS_ALL_FINDINGS // max(told, 1)))
    views = [_finding(number, found, sources or {}, steps)
             for number, found in enumerate((*result.findings, *result.uncertain), 1)]
    caveats = words.caveats(result)
    whole = result.states.feasible_is_exact and words.covered(result) == result.states.feasible
    status: Status = "findings" if result.findings else "clean" if whole and not caveats else "partial"
    return RunView(
        status=status,
        headline=words.headline(result),
        scope=words.scope_sentence(result),
        caveats=caveats,
        counts=_counts(result),
        trace=_trace(result),
        run=_run(result),
        findings=tuple(views[: len(result.findings)]),
        uncertain=tuple(views[len(result.findings) :]),
        not_instrumented=tuple(FactView(line(u.unit, 160), line(u.what, 200)) for u in result.not_instrumented[:200]),
        unmodelled=words.names(result.trace.unmodelled_calls, 100),
        warnings=words.names(result.warnings, 100, 400),
        version=line(result.version, 40),
    )


def _counts(result: RunResult) -> tuple[FactView, ...]:
    states = result.states
    exact = "" if states.feasible_is_exact else line(states.feasible_note, 200) or "a bound, not a count"
    known = words.covered(result)
    share = percent(known, states.feasible) if states.feasible else ""
    return (
        FactView("feasible", human(states.feasible), exact or "states that the model allows, counted exactly"),
        FactView("executed", human(states.executed), "images written and checked"),
        FactView("pruned", human(states.pruned), "equal to a state already executed"),
        FactView("covered", share, "executed or pruned, of the feasible ones"),
        FactView("skipped", human(states.skipped), "produced, but not executed", "warn" if states.skipped else ""),
        FactView("failing", human(states.failing), "the check did not accept the image",
                 "bad" if states.failing else ""),
        FactView("flaky", human(states.flaky), "failed, then passed: never a finding", "warn" if states.flaky else ""),
        FactView("uncertain", human(states.uncertain), "failing, but the trace does not explain all that was read",
                 "warn" if states.uncertain else ""),
    )


def _trace(result: RunResult) -> tuple[FactView, ...]:
    trace = result.trace
    changed = trace.explained_bytes + trace.unexplained_bytes
    share = percent(trace.explained_bytes, changed) if changed else "nothing changed"
    note = f"{human(trace.explained_bytes)} of {human(changed)} changed bytes"
    return (
        FactView("explained", share, note, "warn" if trace.unexplained_bytes else ""),
        FactView("events", human(trace.events), f"{human(trace.stores)} stores, {human(trace.flushes)} flushes, "
                 f"{human(trace.fences)} fences, {human(trace.syncs)} syncs"),
        FactView("operations", human(trace.operations), "marked by the workload"),
        FactView("threads", human(trace.threads), words.plural(trace.processes, "process", "processes")),
        FactView("files", human(len(trace.files)), ", ".join(words.names(trace.files, 6, 80))),
        FactView("trace", line(trace.path, 160), f"ends early: {line(trace.truncated, 200)}" if trace.truncated else "",
                 "warn" if trace.truncated else ""),
    )


def _run(result: RunResult) -> tuple[FactView, ...]:
    return (
        FactView("model", line(result.model, 80), words.model_sentence(result.model)),
        FactView("strategy", line(result.strategy, 80)),
        FactView("stopped", result.stop_reason.value, words.STOP[result.stop_reason]),
        FactView("time", seconds_text(result.seconds)),
        FactView("configuration", line(result.config_path, 200)),
    )


def _finding(number: int, finding: Finding, sources: Sources, limit: int) -> FindingView:
    tags = _tags(finding)
    schedule = _schedule(finding, tags, limit)
    output, left_out = block(finding.verdict.output)
    fates = {step.tag: step.fate for step in schedule.steps if step.tag}
    places = [_place(finding.location, "A" if "A" in fates else "", fates.get("A", "the store"), sources)]
    if finding.other is not None:
        places.append(_place(finding.other, "B" if "B" in fates else "", fates.get("B", "its partner"), sources))
    notes = [line(finding.note)] if finding.note else []
    if finding.depth > 1:
        notes.append("Needs a second crash, during recovery.")
    return FindingView(
        number=number,
        id=line(finding.id, 80),
        kind=finding.kind.value,
        kind_title=words.KIND_TITLE[finding.kind],
        kind_sentence=words.KIND_SENTENCE[finding.kind],
        model=line(finding.model, 60),
        model_sentence=words.model_sentence(finding.model),
        message=line(finding.message, 400),
        places=tuple(places),
        crash_point=line(finding.crash_point, 300),
        crash_place=_place(finding.crash_location, "", "crash point", sources) if finding.crash_location else None,
        story=_story(finding, schedule),
        outcome=words.outcome(finding.verdict),
        output=output,
        output_cut="cut: " + (f"{left_out:,} characters left out here" if left_out else "the check printed more")
        if left_out or finding.verdict.output_truncated else "",
        replay=f"crashcheck replay {shlex.quote(line(finding.replay, 2000))}",
        states=words.explained(finding),
        notes=tuple(notes),
        uncertain=line(finding.uncertain),
        schedule=schedule,
        graph=_graph(finding),
    )


def _where(place: Location | None) -> str:
    if place is None or not place.file:
        return ""
    return f"{line(place.file, 120)}:{place.line}" if place.line else line(place.file, 120)


def _stack(place: Location) -> tuple[str, ...]:
    frames = [f"{line(f.function, 80)}  {line(f.file, 80)}:{f.line}" for f in place.stack[:STACK_MAX]]
    rest = len(place.stack) - STACK_MAX
    return (*frames, f"… {rest} more") if rest > 0 else tuple(frames)


def _place(place: Location, tag: str, role: str, sources: Sources) -> PlaceView:
    lines = tuple(SourceLine(number, line(text.replace("\t", "    "), 200), number == place.line)
                  for number, text in around(sources, place, CONTEXT_LINES))
    return PlaceView(tag, role, _where(place) or "unknown place", line(place.function, 120), line(place.variable, 80),
                     lines, _stack(place))


def _same_site(one: Location | None, other: Location | None) -> bool:
    return (one is not None and other is not None and one.line > 0
            and (one.file, one.line, one.column, one.function) == (other.file, other.line, other.column, other.function))


def _tags(finding: Finding) -> dict[int, str]:
    """The steps that stand for the culprits: the last non-durable one at each site, else the last one."""
    tags: dict[int, str] = {}
    for tag, place in (("A", finding.location), ("B", finding.other)):
        at = [i for i, step in enumerate(finding.schedule)
              if step.state in UPDATES and i not in tags and _same_site(step.location, place)]
        loose = [i for i in at if finding.schedule[i].state != "durable"]
        if at:
            tags[(loose or at)[-1]] = tag
    return tags


def _chosen(finding: Finding, tags: dict[int, str], limit: int) -> list[int]:
    """The steps worth showing where there are too many: culprits, what was lost or survived, then the latest."""
    def weight(index: int) -> tuple[int, int]:
        step = finding.schedule[index]
        rank = 0 if index in tags else 1 if step.state in ("persisted", "lost") else 2
        return rank, -index

    return sorted(sorted(range(len(finding.schedule)), key=weight)[:limit])


def _label(step: ScheduleStep) -> str:
    if step.state in UPDATES and step.location is not None and step.location.variable:
        return line(step.location.variable, 40)
    head = step.detail.split(" = ")[0]
    return line(head or step.what, 40)


def _lane_name(finding: Finding, step: ScheduleStep, files: int) -> str:
    unit = f"{words.granule_word(finding.model)} {step.granule}" if step.granule >= 0 else "name and size"
    return f"{unit} · {line(step.file, 60)}" if files > 1 else unit


def _schedule(finding: Finding, tags: dict[int, str], limit: int) -> ScheduleView:
    chosen = _chosen(finding, tags, limit)
    steps = [finding.schedule[i] for i in chosen]
    files = len({step.file for step in steps if step.file})
    keys = dict.fromkeys((step.file, step.granule) for step in steps if step.file)
    important = dict.fromkeys((finding.schedule[i].file, finding.schedule[i].granule) for i in tags)
    loose = dict.fromkeys((s.file, s.granule) for s in steps if s.state in ("persisted", "lost"))
    own = set(list({**important, **loose, **keys})[:LANES_MAX])
    order = [key for key in keys if key in own]
    index = {key: min(position, LANES_MAX) for position, key in enumerate(order)}
    names = {(s.file, s.granule): _lane_name(finding, s, files) for s in steps if s.file}
    labels = [names[key] for key in order]
    if len(keys) > len(order):
        labels.append(f"{len(keys) - len(order)} other {words.granule_word(finding.model)}s")
    views: list[StepView] = []
    previous = -1
    for position, step in zip(chosen, steps, strict=True):
        lane = index.get((step.file, step.granule), len(order)) if step.file else -1
        views.append(_step(finding, position, step, tags.get(position, ""), lane, position - previous - 1, files))
        previous = position
    lanes = tuple(
        LaneView(label, sum(v.lane == i and v.state in ("durable", "persisted") for v in views),
                 sum(v.lane == i and v.state == "lost" for v in views))
        for i, label in enumerate(labels)
    )
    threads = len({step.thread for step in finding.schedule}) > 1
    counts = {state: sum(step.state == state for step in finding.schedule) for state in words.FATE}
    alt = (f"{words.plural(len(finding.schedule), 'step')} on {words.plural(len(keys), 'granule')} before the crash: "
           f"{counts['durable']} durable, {counts['persisted']} survived, {counts['lost']} lost.")
    return ScheduleView(lanes, tuple(views), len(finding.schedule), threads, alt)


def _step(finding: Finding, position: int, step: ScheduleStep, tag: str, lane: int, skipped: int,
          files: int) -> StepView:
    place = ""
    if step.file:
        name = _lane_name(finding, step, files)
        place = f"{name}, {bytes_text(step.size)} at {step.offset:#x}" if step.size else name
    where = step.location
    return StepView(
        number=position + 1,
        what=line(step.what, 20),
        state=step.state if step.state in UPDATES else "",
        fate=words.FATE.get(step.state, ""),
        tag=tag,
        label=_label(step),
        detail=line(step.detail, 160),
        thread=step.thread,
        lane=lane,
        place=place,
        where=_where(where),
        function=line(where.function, 80) if where else "",
        source=line(where.text, 160) if where else "",
        stack=_stack(where) if where else (),
        skipped_before=skipped,
    )


def _story(finding: Finding, schedule: ScheduleView) -> tuple[str, ...]:
    """The failure in three or four sentences, in the order in which it happens."""
    told = [
        f"{step.label or step.what} is written{' at ' + step.where if step.where else ''}: it "
        f"{'is durable' if step.state == 'durable' else 'reaches the medium' if step.state == 'persisted' else 'is lost'}."
        for step in schedule.steps if step.tag
    ]
    told.append(f"Crash {line(finding.crash_point, 300)}.")
    told.append(f"On the image that is left, {words.outcome(finding.verdict)}.")
    return tuple(told)


def _graph(finding: Finding) -> GraphView | None:
    if not finding.nodes:
        return None

    def rank(index: int) -> tuple[int, int]:
        node = finding.nodes[index]
        culprit = _same_site(node.location, finding.location) or _same_site(node.location, finding.other)
        return (0 if culprit else 1 if node.state in ("persisted", "lost") else 2), index

    kept = sorted(sorted(range(len(finding.nodes)), key=rank)[:NODES_MAX])
    position = {finding.nodes[old].id: new for new, old in enumerate(kept)}
    edges = sorted({(position[e.source], position[e.target], line(e.reason, 24)) for e in finding.edges
                    if e.source in position and e.target in position and e.source != e.target})
    tagged: dict[int, str] = {}
    for tag, place in (("A", finding.location), ("B", finding.other)):
        at = [new for new, old in enumerate(kept)
              if new not in tagged and _same_site(finding.nodes[old].location, place)]
        loose = [new for new in at if finding.nodes[kept[new]].state != "durable"]
        if at:
            tagged[(loose or at)[-1]] = tag
    nodes = tuple(
        NodeView(line(finding.nodes[old].label, 60), _where(finding.nodes[old].location),
                 finding.nodes[old].state if finding.nodes[old].state in UPDATES else "",
                 words.FATE.get(finding.nodes[old].state, ""), tagged.get(new, ""),
                 f"{words.granule_word(finding.model)} {finding.nodes[old].granule}"
                 if finding.nodes[old].granule >= 0 else "name and size")
        for new, old in enumerate(kept)
    )
    pair = tuple(sorted(tagged))
    unordered = None
    if len(pair) == 2:
        arcs = [(a, b) for a, b, _ in edges]
        if not _reaches(arcs, pair[0], pair[1]) and not _reaches(arcs, pair[1], pair[0]):
            unordered = (pair[0], pair[1])
    alt = f"{words.plural(len(finding.nodes), 'update')}, {words.plural(len(finding.edges), 'rule')} that orders them."
    return GraphView(nodes, tuple(EdgeView(*edge) for edge in edges), unordered, len(finding.nodes), alt)


def _reaches(arcs: list[tuple[int, int]], start: int, goal: int) -> bool:
    seen, todo = {start}, [start]
    while todo:
        here = todo.pop()
        for source, target in arcs:
            if source == here and target not in seen:
                seen.add(target)
                todo.append(target)
    return goal in seen
