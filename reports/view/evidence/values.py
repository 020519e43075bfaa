"""What a renderer makes of one kind of evidence: blocks that every format knows how to show."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from crashcheck.checker.results import Evidence, Finding, Location
from crashcheck.reports.view.places import MarkedLine, PlaceView
from crashcheck.reports.view.source_lines import Sources

E = TypeVar("E", bound=Evidence)


@dataclass(frozen=True, slots=True)
class FlowStep:
    """A step of the failure, for viewers that walk through source lines."""

    lane: str  # what did it: "thread 1"
    number: int  # in the order of all lanes
    text: str
    file: str  # "" if its place is unknown: it is then listed with the next step of a known place
    line: int
    column: int
    importance: Literal["essential", "important", "unimportant"] = "unimportant"
    nesting: int | None = None
    at_last: bool = False  # where its place is unknown, it is at that of the step before


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceView:
    """One kind of evidence as it is shown. Formats take from it what they can show."""

    title: str  # "Crash schedule"
    occasion: str  # the noun for what happened: "crash"
    after: str  # when it fails, on a first line: "after a power failure"
    summary: str  # what follows `occasion`: "before the fence at hash.c:44, in operation 3"
    sentence: str  # what is wrong
    assumes: str = ""  # what is taken for granted, in a sentence
    places: tuple[PlaceView, ...]  # the blamed ones, the finding's own first
    both: tuple[MarkedLine, ...] = ()  # the lines of two places in one excerpt, where they are close; else empty
    spot: PlaceView | None = None  # where it happens, if that is none of `places`
    story: tuple[str, ...]  # in the order in which it happens
    notes: tuple[str, ...] = ()
    rows: tuple[str, ...]  # the steps as lines of text in columns
    on_terminal: bool = False  # whether a terminal shows the rows
    flow: tuple[FlowStep, ...] = ()
    template: str = "evidence.html.j2"  # defines the macros `steps` and `more`


@dataclass(frozen=True, slots=True)
class Nearby:
    """A place where a finding can be annotated, if the change does not show its own."""

    location: Location
    distance: int  # from the finding's place, in steps
    what: str  # "is the other store"
    related: bool = True  # also where the change only shows its line


@dataclass(frozen=True, slots=True)
class Context:
    """What a renderer is given beside the finding."""

    sources: Sources
    most_steps: int


def _places(finding: Finding, evidence: E) -> Iterable[Nearby]:
    return (Nearby(place, at, "is a place of this failure") for at, place in enumerate(evidence.places, 1))


def _no_words(finding: Finding, evidence: E, header: str) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class Renderer(Generic[E]):
    """How one kind of evidence is shown."""

    name: str  # in JSON
    kind: type[E]
    noun: str  # for the finding's own place: "store"
    view: Callable[[Finding, E, Context], EvidenceView]
    nearby: Callable[[Finding, E], Iterable[Nearby]] = _places
    header_changed: Callable[[Finding, E, str], str] = _no_words  # why a change of a header may be the cause
