"""What a crash of a machine may leave of a node's folder: states that the crash model allows.

They are those of one program (checker/states) at one moment: when the machine lost the power, or earlier in the node's
last action, if nobody has heard of anything since. All that was written is first, then the least; the others are in the
order of the ranked strategy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import chain, islice
from pathlib import Path

import numpy as np

from crashcheck.analyzer.behaviours.calls.call_places import CallPlaces
from crashcheck.analyzer.compile.facts import ProgramFacts
from crashcheck.analyzer.persistence import build as build_graph
from crashcheck.analyzer.persistence.graph import Options
from crashcheck.analyzer.trace.completeness import causes
from crashcheck.analyzer.trace.reader import Trace, calls_of, read
from crashcheck.analyzer.trace.replay import check as check_replay
from crashcheck.checker.execution.tasks import write_image
from crashcheck.checker.findings.describe import named
from crashcheck.checker.findings.provenance import TraceProvenance
from crashcheck.checker.images.folder_content import content_of
from crashcheck.checker.states.space import CrashState, StateSpace
from crashcheck.checker.strategies import Ranked
from crashcheck.checker.subject import Subject
from crashcheck.checker.token import digest
from crashcheck.runtime.nodes.actions import ALL_WRITTEN, LEAST_WRITTEN, DiskState
from crashcheck.runtime.nodes.machines import NodeRecording
from crashcheck.runtime.trace_format import Kind
from crashcheck.runtime.validate import read_notes

_NAME_BYTES = 6  # of the number that names a state: few are possible after one crash
_NAMED_MOST = 4  # updates that were lost
_TRIED_FOR_EACH = 64  # choices of the strategy for each state: more of them are equal to earlier ones

Found = dict[int, CrashState]  # by name


@dataclass(frozen=True, slots=True)
class _Known:
    """What is known of all crashes after which the trace is the same."""

    found: Found
    complete: bool
    unaccounted: tuple[str, ...]
    described: dict[int, DiskState] = field(default_factory=dict)  # by name, those that were asked for


class RankedDisks:
    """Finds the states of the crashes of a search (machines.CrashDisk).

    `most`: of one crash. `folder`: of the project.
    """

    def __init__(self, model: str, options: Options, most: int, folder: Path) -> None:
        # constant
        self._model = model
        self._options = options
        self._most = most
        self._folder = folder
        # changing
        self._known: dict[tuple[bytes, int], _Known] = {}  # by trace, and the event since which a crash is possible
        self._facts: dict[tuple[str, ...], ProgramFacts] = {}  # by the programs that were executed

    def __call__(self, recording: NodeRecording) -> RankedDisk:
        trace = read(recording.trace)
        since = int(np.searchsorted(trace.events["seq"], recording.since, side="right"))
        key = digest(trace), since

        @cache
        def subject() -> Subject:
            graph = build_graph(trace, self._model, self._options)
            space, facts = StateSpace(graph, since=since), self._facts_of(trace)
            content = content_of(space, recording.first)
            return Subject(trace, graph, space, content, TraceProvenance(trace, facts, self._folder))

        if key not in self._known:
            lost = causes(trace, check_replay(trace, recording.first, recording.last), read_notes(recording.trace))
            self._known[key] = _Known(
                *self._find(subject()), tuple(f"a change that is not recorded: {one}" for one in lost)
            )
        return RankedDisk(recording.first, self._known[key], subject)

    def _facts_of(self, trace: Trace) -> ProgramFacts:
        executed = (trace.data(at) for at in trace.rows(Kind.EXEC).tolist())
        programs = tuple(dict.fromkeys(data.decode("utf-8", "surrogateescape") for data in executed))
        if programs not in self._facts:
            self._facts[programs] = ProgramFacts.load(path for path in programs if Path(path).is_file())
        return self._facts[programs]

    def _find(self, subject: Subject) -> tuple[Found, bool]:
        """The states in their order, and whether there are no more."""
        space = subject.space
        plan = Ranked(self._facts_of(subject.trace)).plan(space).choices()
        least = space.empty(0)
        states = chain((space.full(len(space.points) - 1), least), (choice.state for choice in plan))
        seen, found = set[bytes](), Found()
        for state in islice(states, _TRIED_FOR_EACH * self._most):
            content = subject.content.fingerprint(state)
            if content in seen:
                continue
            if len(found) == self._most:
                return found, False
            seen.add(content)
            number = int.from_bytes(content[:_NAME_BYTES], "little") | 2  # no name of the first two
            name = ALL_WRITTEN if not found else LEAST_WRITTEN if state == least else number
            found[name] = state
        return found, next(states, None) is None


@dataclass(frozen=True, slots=True, eq=False)
class RankedDisk:
    """What one crash left (machines.CrashedDisk)."""

    _first: Path
    _known: _Known
    _subject: Callable[[], Subject]

    @property
    def states(self) -> tuple[int, ...]:
        return tuple(self._known.found)

    @property
    def complete(self) -> bool:
        return self._known.complete

    @property
    def unaccounted(self) -> tuple[str, ...]:
        return self._known.unaccounted

    def described(self, name: int) -> DiskState:
        described, found = self._known.described, self._known.found
        if name not in described:
            described[name] = _LostNames(self._subject()).described(name, found[name])
        return described[name]

    def write(self, name: int, folder: Path) -> None:
        write_image(self._subject().content, self._first, self._known.found[name], folder)


class _LostNames:
    """Names the updates that a state lacks."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._calls = CallPlaces(subject.trace)
        # pieces that a crash at the first of the points may lose
        self._loose = np.flatnonzero(subject.graph.durable_from > subject.space.moment(0)).tolist()

    def described(self, name: int, state: CrashState) -> DiskState:
        subject = self._subject
        held = {*subject.space.durable(state.point).tolist(), *subject.space.persisted(state)}
        lost: dict[int, list[int]] = {}  # pieces, by event
        for piece in self._loose:
            if piece not in held:
                lost.setdefault(subject.event_of(piece), []).append(piece)
        kept = {subject.event_of(piece) for piece in self._loose if piece in held}
        texts = [
            ("part of " if event in kept else "") + self._text(event, pieces)
            for event, pieces in islice(lost.items(), _NAMED_MOST)
        ]
        place = subject.provenance.of(min(lost)) if lost else None
        return DiskState(
            name,
            len({subject.event_of(piece) for piece in self._loose}),
            len(lost),
            tuple(texts),
            f"{place.function} ({place.file}:{place.line})" if place is not None and place.line else "",
        )

    def _text(self, event: int, pieces: Sequence[int]) -> str:
        """What a call changed, and where that was called."""
        subject = self._subject
        data = [piece for piece in pieces if subject.graph.piece(piece).kind == "data"]
        text = named(subject, (data or pieces)[0])
        if subject.provenance.of(event) is not None:
            return text
        caller = self._calls.caller_of(self._calls.frames(int(calls_of(subject.trace.events[event : event + 1])[0])))
        return f"{text} in {caller}" if caller else text
