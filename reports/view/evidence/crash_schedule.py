"""How a crash state is shown: the crash schedule with the blamed pair of updates, and the persistence graph."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from crashcheck.checker.evidence import CrashSchedule, RecoveryCrash, ScheduleStep
from crashcheck.checker.results import KILL_SHOWS_IT, Finding, FindingKind
from crashcheck.models import family_of
from crashcheck.reports.view import sentences
from crashcheck.reports.view.evidence.values import Context, EvidenceView, FlowStep, Nearby, Renderer
from crashcheck.reports.view.excerpts import StepFile, step_sources
from crashcheck.reports.view.failing_behaviour import (
    GraphView,
    ScheduleView,
    StepView,
    culprits,
    graph_view,
    schedule_view,
)
from crashcheck.reports.view.places import PlaceView, both_lines, place_view, same_site
from crashcheck.reports.view.text import line

ROWS_MAX = 40  # steps of a schedule as text


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashView(EvidenceView):
    """A crash state as it is shown."""

    by_sync: bool
    schedule: ScheduleView
    step_sources: tuple[StepFile, ...]
    graph: GraphView | None


def view(finding: Finding, crash: CrashSchedule, context: Context) -> CrashView:
    """The blamed stores with their fates, the schedule up to the crash, and the graph."""
    schedule = schedule_view(crash, finding.model, culprits(finding.location, crash), context.most_steps)
    fates = {step.tag: step.fate for step in (*schedule.steps, *schedule.unreached) if step.tag}
    roles = (("A", "the store"), ("B", "the other store"))
    places = [
        place_view(place, tag if tag in fates else "", fates.get(tag, role), context.sources)
        for place, (tag, role) in zip(finding.blamed, roles, strict=False)
    ]
    at = crash.crash_location
    if any(same_site(at, place) for place in finding.blamed):
        at = None  # its lines are shown already
    spot = place_view(at, "", "crash point", context.sources) if at is not None else None
    point, outcome = line(crash.crash_point, 300), sentences.outcome(crash.verdict)
    return CrashView(
        title="Crash schedule",
        occasion="crash",
        after="after kill -9" if KILL_SHOWS_IT in finding.note else "after a power failure",
        summary=point,
        sentence=_sentence(finding, crash),
        assumes=sentences.model_sentence(finding.model),
        places=tuple(places),
        both=both_lines(finding.location, crash.other, places, context.sources),
        spot=spot,
        story=tuple(_story(schedule, point, outcome)),
        rows=_rows(schedule, point),
        flow=tuple(_flow(crash, schedule, spot or _shown_at(places, crash), f"crash {point}; then {outcome}")),
        template="schedule.html.j2",
        by_sync=family_of(finding.model).by_sync,
        schedule=schedule,
        step_sources=step_sources(finding.location.file, crash, schedule, context.sources),
        graph=graph_view(finding.location, crash, finding.model),
    )


def recovery_view(finding: Finding, crash: RecoveryCrash, context: Context) -> CrashView:
    """The same, of the check's own run."""
    return replace(view(finding, crash, context), notes=("Needs a second crash, during recovery.",))


def _sentence(finding: Finding, crash: CrashSchedule) -> str:
    """What is wrong, with the names of both stores where they are known."""
    if finding.kind is FindingKind.ORDERING and crash.other is not None:
        first, second = crash.other.name, finding.location.name
        if all(name and name == line(name, 80) and "`" not in name for name in (first, second)):
            return (
                f"Nothing guarantees that `{first}` (stored first) is durable before `{second}`, "
                "so a crash can keep the second without the first."
            )
    return sentences.KIND_SENTENCE[finding.kind]


def _story(schedule: ScheduleView, point: str, outcome: str) -> Iterator[str]:
    """The failure in three or four sentences, in the order in which it happens."""
    for step in schedule.steps:
        if step.tag:
            place = f" at {step.where}" if step.where else ""
            yield f"`{step.label or step.what}` is written{place}: {sentences.FATE_CLAUSE[step.state]}."
    yield f"Crash {point}."
    for step in schedule.unreached:
        if step.tag:
            yield f"`{step.label or step.what}`{' at ' + step.where if step.where else ''} is not reached."
    yield f"On the crash image, {outcome}."


def _rows(schedule: ScheduleView, point: str) -> tuple[str, ...]:
    """The schedule as lines of text in columns: culprit, event, thread, fate, what, where."""
    latest = {id(step) for step in schedule.steps[-(ROWS_MAX - 2) :]}
    chosen = [step for step in schedule.steps if step.tag or id(step) in latest]
    steps = [*chosen, *schedule.unreached[:ROWS_MAX]]
    left_out = schedule.total - len(steps)
    rows = [f"… {sentences.plural(left_out, 'step')} of the schedule not shown …"] if left_out > 0 else []
    cells = [_cells(step, schedule.threads) for step in steps]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    shown = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    return (*rows, *shown[: len(chosen)], f"--- crash {point}", *shown[len(chosen) :])


def _cells(step: StepView, threads: bool) -> list[str]:
    thread = [f"thread {step.thread}"] if threads else []
    fate = step.fate or step.what
    return [step.tag or " ", str(step.event), *thread, fate, line(step.detail, 70), step.where]


def _shown_at(places: list[PlaceView], crash: CrashSchedule) -> PlaceView | None:
    at = crash.crash_location
    return next((spot for spot in places if at is not None and (spot.file, spot.line) == (at.file, at.line)), None)


def _flow(crash: CrashSchedule, schedule: ScheduleView, at: PlaceView | None, ends: str) -> Iterator[FlowStep]:
    """The schedule, the crash and the steps that it prevented."""
    stacks = [len(step.location.stack) for step in crash.schedule if step.location]
    base = min(stacks, default=0)

    def shown(step: StepView, number: int) -> FlowStep:
        origin = crash.schedule[step.number - 1].location
        return FlowStep(
            f"thread {step.thread}",
            number,
            _step_text(step),
            step.file if step.line else "",
            step.line,
            step.column,
            "essential" if step.tag else "important" if step.state else "unimportant",
            len(origin.stack) - base if origin else 0,
        )

    yield from (shown(step, step.number) for step in schedule.steps)
    last = next((step for step in reversed(schedule.steps) if step.file and step.line), None)
    if last is not None:
        place = (at.file, at.line, at.column) if at is not None else ("", 0, 0)
        yield FlowStep(
            f"thread {last.thread}", schedule.steps[-1].number + 1, ends, *place, importance="essential", at_last=True
        )
    yield from (shown(step, step.number + 1) for step in schedule.unreached)


def _step_text(step: StepView) -> str:
    """ "A: store `token.valid = 01` survived (line 40)"."""
    tag = f"{step.tag}: " if step.tag else ""
    fate = f" {step.fate}" if step.fate else ""
    place = f" ({step.place})" if step.place else ""
    return f"{tag}{step.what} {step.detail}{fate}{place}"


def nearby(finding: Finding, crash: CrashSchedule) -> Iterator[Nearby]:
    """The other store, then the steps, those that are near the store in the trace first.

    Steps of earlier operations are of something else.
    """
    steps, tagged = crash.schedule, culprits(finding.location, crash)
    store = next((i for i, tag in tagged.items() if tag == "A"), len(steps) - 1)
    first = max((i for i in range(min(tagged, default=0)) if steps[i].what == "mark"), default=0)
    own = (finding.location, crash.other, crash.crash_location)
    if crash.other is not None:
        yield Nearby(crash.other, 0, "is the other store")
    for i, step in enumerate(steps):
        if i >= first and step.location is not None:
            yield Nearby(step.location, abs(i - store), _what(step), step.location in own)
    if crash.crash_location is not None:
        yield Nearby(crash.crash_location, len(steps), "is where the crash is")


def _what(step: ScheduleStep) -> str:
    """ "is the flush `clwb` of its crash schedule"."""
    shown = line(step.detail.split(" = ")[0], 60).replace("`", "'")
    return (
        f"is the {line(step.what, 20)} `{shown}` of its crash schedule" if shown else "is a step of its crash schedule"
    )


def header_changed(finding: Finding, crash: CrashSchedule, header: str) -> str:
    """The granules of the two stores, which a new layout of a structure may have parted."""
    steps = {tag: crash.schedule[at] for at, tag in culprits(finding.location, crash).items()}
    if len(steps) < 2 or crash.other is None:
        return ""
    first, second = steps["B"].granule, steps["A"].granule
    if first < 0 or second < 0 or (steps["A"].file, first) == (steps["B"].file, second):
        return ""
    word = sentences.granule_name(finding.model)
    names = [line(place.name, 60).replace("`", "'") or "the store" for place in (crash.other, finding.location)]
    return (
        f" It changes {line(header, 120)}, which may have moved a field to another {word}: `{names[0]}` is in "
        f"{word} {first} and `{names[1]}` in {word} {second}, and only updates of one {word} persist in order."
    )


CRASH = Renderer("crash", CrashSchedule, "store", view, nearby, header_changed)
RECOVERY = Renderer("recovery", RecoveryCrash, "store", recovery_view, nearby, header_changed)
