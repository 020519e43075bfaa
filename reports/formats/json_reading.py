"""The JSON report read back: a document of unknown origin in, the run that it tells of out, or a clear refusal."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from enum import StrEnum
from typing import Any, TypeVar

from crashcheck.checker.results import (
    Edit,
    Finding,
    Fix,
    Frame,
    GraphEdge,
    GraphNode,
    GroupRow,
    GroupVerdict,
    Kind,
    Location,
    Note,
    NotInstrumented,
    Outcome,
    RunResult,
    ScheduleStep,
    StateCounts,
    StopReason,
    TraceSummary,
    Unexercised,
    Verdict,
)
from crashcheck.errors import CrashcheckError
from crashcheck.reports.view.numbers import SAFE_INTEGER

MOST_CHARS = 256 << 20
MOST_DIGITS = 1_000_000  # of one count; the time to read more grows with its square
_LINE_MOST = 2**31 - 1
_CHUNK_DIGITS = 4000  # below the limit that Python sets on str-to-int conversion

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)


def load(text: str, schema_version: int) -> RunResult:
    """The run that `text`, a document of `json_report.render`, tells of.

    Fields that are unknown are ignored; fields that came later than the first version may be missing. Raises
    CrashcheckError(report-unreadable) for what is no such document, (report-version) for one of another version.
    """
    if len(text) > MOST_CHARS:
        raise _refused("", f"it has {len(text):,} characters; the most is {MOST_CHARS:,}")
    try:
        document = json.loads(text, parse_constant=_no_number, parse_int=_integer)
    except RecursionError as error:
        raise _refused("", "it is nested too deeply") from error
    except ValueError as error:
        raise _refused("", f"it is no JSON: {str(error)[:200]}") from error
    top = _Reader(document, "")
    version = top.whole("schema")
    if version != schema_version:
        raise CrashcheckError(
            "report-version",
            f"the report is of version {version}; this crashcheck reads version {schema_version}.",
            "Make it again with this crashcheck, or use the one that made it.",
        )
    return _run(top)


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no number of JSON")


def _integer(digits: str) -> int:
    if len(digits) > 20:
        raise ValueError(f"a number of {len(digits):,} digits")
    return int(digits)


def _refused(path: str, why: str) -> CrashcheckError:
    at = f" at {path}" if path else ""
    return CrashcheckError(
        "report-unreadable",
        f"this is no JSON report of crashcheck:{at} {why}.",
        "`crashcheck run --format json=report.json` writes one.",
    )


class _Reader:
    """An object of the document. A getter gives a field of the type asked for, or refuses and says where."""

    def __init__(self, value: object, path: str) -> None:
        if not isinstance(value, dict):
            raise _refused(path, "an object is missing")
        self.value: dict[str, Any] = value
        self.path = path

    def _at(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name

    def _field(self, name: str) -> Any:
        if name not in self.value:
            raise _refused(self._at(name), "the field is missing")
        return self.value[name]

    def has(self, name: str) -> bool:
        return name in self.value

    def text(self, name: str) -> str:
        """A string; "" for null."""
        value = self._field(name)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise _refused(self._at(name), "a string is missing")
        return value

    def whole(self, name: str, least: int = 0, most: int = SAFE_INTEGER) -> int:
        value = self._field(name)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise _refused(self._at(name), f"a whole number from {least} to {most} is missing")
        return value

    def maybe_whole(self, name: str, least: int = 0) -> int | None:
        return None if self._field(name) is None else self.whole(name, least)

    def number(self, name: str) -> float:
        value = self._field(name)
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not math.isfinite(value) or value < 0:
            raise _refused(self._at(name), "a number is missing")
        return float(value)

    def flag(self, name: str) -> bool:
        value = self._field(name)
        if not isinstance(value, bool):
            raise _refused(self._at(name), "true or false is missing")
        return value

    def count(self, name: str) -> int:
        """A count as `numbers.json_count` writes it."""
        value = self._field(name)
        if not isinstance(value, str):
            return self.whole(name)
        if not value.isascii() or not value.isdecimal() or len(value) > MOST_DIGITS:
            raise _refused(self._at(name), f"a count of at most {MOST_DIGITS:,} digits is missing")
        total = 0
        for start in range(0, len(value), _CHUNK_DIGITS):
            part = value[start : start + _CHUNK_DIGITS]
            total = total * 10 ** len(part) + int(part)
        return total

    def one_of(self, name: str, choices: type[E]) -> E:
        value = self._field(name)
        try:
            return choices(value)
        except ValueError:
            raise _refused(self._at(name), f"one of {', '.join(choices)} is missing") from None

    def word(self, name: str, choices: tuple[str, ...]) -> str:
        value = self.text(name)
        if value not in choices:
            raise _refused(self._at(name), f"one of {', '.join(word for word in choices if word)} is missing")
        return value

    def inner(self, name: str) -> _Reader:
        return _Reader(self._field(name), self._at(name))

    def maybe(self, name: str, read: Callable[[_Reader], T]) -> T | None:
        return None if self._field(name) is None else read(self.inner(name))

    def _list(self, name: str) -> list[Any]:
        value = self._field(name)
        if not isinstance(value, list):
            raise _refused(self._at(name), "a list is missing")
        return value

    def each(self, name: str, read: Callable[[_Reader], T]) -> tuple[T, ...]:
        return tuple(read(_Reader(item, f"{self._at(name)}[{i}]")) for i, item in enumerate(self._list(name)))

    def texts(self, name: str) -> tuple[str, ...]:
        values = self._list(name)
        if not all(isinstance(value, str) for value in values):
            raise _refused(self._at(name), "a list of strings is missing")
        return tuple(values)


_STATES = ("", "durable", "persisted", "lost", "unreached")
_WASTES = ("clean-flush", "repeated-flush", "empty-fence", "empty-sync")


def _run(top: _Reader) -> RunResult:
    run = top.inner("run")
    return RunResult(
        config_path=run.text("config"),
        model=run.text("model"),
        strategy=run.text("strategy"),
        stop_reason=run.one_of("stop_reason", StopReason),
        states=_states(run.inner("states")),
        trace=_trace(run.inner("trace")),
        findings=top.each("findings", _finding),
        uncertain=top.each("uncertain", _finding),
        not_instrumented=run.each("not_instrumented", lambda u: NotInstrumented(u.text("unit"), u.text("what"))),
        warnings=run.texts("warnings"),
        seconds=run.number("seconds"),
        version=top.inner("tool").text("version"),
        groups=top.each("groups", _group) if top.has("groups") else (),
        notes=run.each("notes", _note) if run.has("notes") else (),
        unexercised=run.each("unexercised", _unexercised) if run.has("unexercised") else (),
    )


def _states(states: _Reader) -> StateCounts:
    return StateCounts(
        feasible=states.count("feasible"),
        feasible_is_exact=states.flag("feasible_exact"),
        feasible_note=states.text("feasible_note"),
        executed=states.count("executed"),
        pruned=states.count("pruned"),
        skipped=states.count("skipped"),
        failing=states.count("failing"),
        flaky=states.count("flaky"),
        uncertain=states.count("uncertain"),
        put_off=states.count("put_off") if states.has("put_off") else 0,
    )


def _trace(trace: _Reader) -> TraceSummary:
    return TraceSummary(
        path=trace.text("path"),
        events=trace.whole("events"),
        stores=trace.whole("stores"),
        flushes=trace.whole("flushes"),
        fences=trace.whole("fences"),
        syncs=trace.whole("syncs"),
        threads=trace.whole("threads"),
        processes=trace.whole("processes"),
        files=trace.texts("files"),
        operations=trace.whole("operations"),
        explained_bytes=trace.whole("explained_bytes"),
        unexplained_bytes=trace.whole("unexplained_bytes"),
        unmodelled_calls=trace.texts("unmodelled_calls"),
        truncated=trace.text("truncated"),
    )


def _unexercised(one: _Reader) -> Unexercised:
    return Unexercised(one.text("function"), one.text("file"), one.whole("line"), one.whole("stores", 1))


def _note(note: _Reader) -> Note:
    return Note(
        note.word("waste", _WASTES), _location(note.inner("location")), note.whole("count", 1), note.whole("total", 1)
    )


def _finding(found: _Reader) -> Finding:
    graph = found.inner("graph")
    return Finding(
        id=found.text("id"),
        kind=found.one_of("kind", Kind),
        model=found.text("model"),
        message=found.text("message"),
        location=_location(found.inner("location")),
        other=found.maybe("other", _location),
        crash_point=found.text("crash_point"),
        crash_location=found.maybe("crash_location", _location),
        verdict=_verdict(found.inner("verdict")),
        schedule=found.each("schedule", _step),
        nodes=graph.each("nodes", _node),
        edges=graph.each("edges", _edge),
        replay=found.text("replay"),
        states=found.count("states"),
        depth=found.whole("depth", 1),
        uncertain=found.text("uncertain"),
        note=found.text("note"),
        new=found.flag("new") if found.has("new") else True,
        suppressed=found.text("suppressed") if found.has("suppressed") else "",
        fix=found.maybe("fix", _fix) if found.has("fix") else None,
        likenesses=found.texts("likenesses") if found.has("likenesses") else (),
        in_diff=found.flag("in_diff") if found.has("in_diff") else False,
    )


def _fix(fix: _Reader) -> Fix:
    return Fix(
        kind=fix.text("kind"),
        words=fix.text("words"),
        edits=fix.each("edits", _edit),
        before_failing=fix.count("before_failing"),
        after_failing=fix.count("after_failing"),
        verified=fix.text("verified"),
        extra_flushes=fix.count("extra_flushes"),
        extra_fences=fix.count("extra_fences"),
        extra_syncs=fix.count("extra_syncs"),
        no_edit=fix.text("no_edit"),
    )


def _edit(edit: _Reader) -> Edit:
    return Edit(
        file=edit.text("file"),
        line=edit.whole("line", 1, _LINE_MOST),
        insert_before=edit.flag("insert_before"),
        text=edit.text("text"),
        replaces=edit.text("replaces"),
    )


def _location(place: _Reader) -> Location:
    return Location(
        file=place.text("file"),
        line=place.whole("line", most=_LINE_MOST),
        column=place.whole("column", most=_LINE_MOST),
        function=place.text("function"),
        variable=place.text("variable"),
        stack=place.each(
            "stack", lambda f: Frame(f.text("function"), f.text("file"), f.whole("line", most=_LINE_MOST))
        ),
        text=place.text("text"),
        expression=place.text("expression") if place.has("expression") else "",
    )


def _verdict(verdict: _Reader) -> Verdict:
    return Verdict(
        outcome=verdict.one_of("outcome", Outcome),
        exit_code=verdict.maybe_whole("exit_code", least=-_LINE_MOST),
        signal=verdict.maybe_whole("signal"),
        output=verdict.text("output"),
        output_truncated=verdict.flag("output_truncated"),
        seconds=verdict.number("seconds"),
    )


def _granule(of: _Reader) -> int:
    granule = of.maybe_whole("granule")
    return -1 if granule is None else granule


def _maybe(of: _Reader, name: str) -> int:
    number = of.maybe_whole(name) if of.has(name) else None
    return -1 if number is None else number


def _step(step: _Reader) -> ScheduleStep:
    return ScheduleStep(
        event=step.whole("event"),
        thread=step.whole("thread"),
        what=step.text("what"),
        state=step.word("state", _STATES),
        detail=step.text("detail"),
        file=step.text("file"),
        offset=step.whole("offset"),
        size=step.whole("size"),
        granule=_granule(step),
        location=step.maybe("location", _location),
        role=step.word("role", ("", "location", "other")) if step.has("role") else "",
        durable_from=_maybe(step, "durable_from"),
    )


def _node(node: _Reader) -> GraphNode:
    return GraphNode(
        node.whole("id"),
        node.text("label"),
        node.word("state", _STATES),
        _granule(node),
        node.maybe("location", _location),
    )


def _edge(edge: _Reader) -> GraphEdge:
    return GraphEdge(edge.whole("source"), edge.whole("target"), edge.text("reason"))


def _group(row: _Reader) -> GroupRow:
    graph = row.inner("graph") if row.has("graph") else None
    return GroupRow(
        number=row.whole("rank", 1),
        types=row.texts("types"),
        instance=row.text("instance"),
        operation=row.whole("operation"),
        members=row.whole("members", 1),
        updates=row.whole("updates"),
        sites=row.each("sites", _location),
        score=row.number("score"),
        because=row.texts("because"),
        feasible=row.count("feasible"),
        feasible_is_exact=row.flag("feasible_exact"),
        executed=row.count("executed"),
        failing=row.count("failing"),
        complete=row.flag("complete"),
        verdict=row.one_of("verdict", GroupVerdict),
        nodes=graph.each("nodes", _node) if graph else (),
        edges=graph.each("edges", _edge) if graph else (),
    )
