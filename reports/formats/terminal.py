"""The report for a terminal: one compact block per finding, the bug first, then what was covered."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence

from rich.console import Console, RenderableType
from rich.rule import Rule
from rich.text import Text

from crashcheck.reports.view.evidence.values import EvidenceView
from crashcheck.reports.view.places import PlaceView
from crashcheck.reports.view.run_view import FactView, FindingView, FixView, RunView
from crashcheck.reports.view.text import telling

# Every text is put into rich.text.Text, never into markup: names and output of a program may hold "[red]".
_FATE_STYLE = {"lost": "bold red", "survived": "bold cyan", "durable": "bold"}
_TONE_STYLE = {"bad": "bold red", "warn": "yellow", "": ""}
_STATUS_STYLE = {"findings": "bold red", "partial": "bold yellow", "clean": "bold green"}
OUTPUT_LINES = 6
UNEXERCISED_SHOWN = 5
_COPIED = "  replay  "  # how a command begins that is copied whole
_LABEL = re.compile(r" *(?:! |\S+ {2,})?")


def print_report(view: RunView, console: Console, html_path: str = "", edge: bool | None = None) -> None:
    """Write the report to `console`; `html_path` is named at the end where an HTML report was written.

    `edge`: whether lines end at the console's width; by default on a terminal. A file, a pipe or a log has none.
    """
    edge = console.is_terminal if edge is None else edge
    for part in _parts(view, html_path):
        if not isinstance(part, Text):
            console.print(part)
        elif part.no_wrap and edge:
            console.print(part, no_wrap=True, overflow=part.overflow, crop=True)
        elif edge and not part.plain.startswith(_COPIED):
            for row in part.split("\n", allow_blank=True):
                console.print(Text("\n").join(_wrapped(row, console)), soft_wrap=True)
        else:
            console.print(part, soft_wrap=True)


def _wrapped(row: Text, console: Console) -> list[Text]:
    """The row, broken between words; what follows is indented as the text after the row's label."""
    found = _LABEL.match(row.plain)
    hang = min(found.end() if found else 0, console.width // 2)
    rows = row[hang:].wrap(console, console.width - hang)
    for each in rows:
        each.rstrip()
    return [
        row[:hang].append_text(each) if not at else Text(" " * hang).append_text(each) for at, each in enumerate(rows)
    ]


def render(view: RunView, width: int = 100, color: bool = False, html_path: str = "") -> str:
    """The report as a string, for files and tests."""
    buffer = io.StringIO()
    console = Console(
        file=buffer,
        width=width,
        force_terminal=color,
        no_color=not color,
        highlight=False,
        color_system="standard" if color else None,
        legacy_windows=False,
        _environ={},
    )
    print_report(view, console, html_path)
    return buffer.getvalue()


def _parts(view: RunView, html_path: str) -> list[RenderableType]:
    parts: list[RenderableType] = []
    recipes = set[tuple[str, ...]]()  # each is shown once
    for finding in view.findings:
        parts += [*_finding(finding, recipes), Text()]
    if view.uncertain:
        parts.append(Rule(Text("Uncertain: fails, but not proved"), style="yellow"))
        for finding in view.uncertain:
            parts += [*_finding(finding, recipes), Text()]
    parts += _summary(view, html_path)
    return parts


def _finding(finding: FindingView, recipes: set[tuple[str, ...]]) -> list[RenderableType]:
    head = Text(finding.message, "bold yellow" if finding.uncertain else "bold red")
    kind = Text(finding.kind_title.lower(), "bold").append(f"  [{finding.model}]  {finding.id}", "not bold dim")
    if finding.standing:
        kind.append(f"  {finding.standing}", "bold")
    body = [kind]
    if finding.uncertain:
        body.append(Text(f"uncertain: {finding.uncertain}", "yellow"))
    body.append(_check(finding))
    shown = finding.evidence
    if shown.both:
        body += [*(_place_head(place) for place in shown.places), *_both(shown)]
    else:
        for place in shown.places:
            body += _place(place)
    body += _fix(finding.fix)
    if finding.fix is not None and finding.fix.recipe and finding.fix.recipe not in recipes:
        recipes.add(finding.fix.recipe)
        body += [Text("         ").append(text, "green" if at else "dim") for at, text in enumerate(finding.fix.recipe)]
    body.append(Text().append("replay   ", "dim").append(finding.replay, "green"))
    body.append(Text().append(f"{shown.occasion:<9}", "dim").append(shown.summary))
    if shown.on_terminal:
        body += [Text(f"  {row}", no_wrap=True, overflow="ellipsis") for row in shown.rows]
    body += [Text().append("note     ", "dim").append(note) for note in finding.notes]
    return [head, *(_indent(part) for part in body)]


def _fix(fix: FixView | None) -> list[Text]:
    if fix is None:
        return []
    rows = [Text().append("fix      ", "dim").append(fix.words)]
    rows += [Text("         ").append(text, "green") for text in fix.patch]
    if fix.no_edit:
        rows.append(Text("         ").append(f"no edit: {fix.no_edit}", "dim"))
    if fix.verified:
        rows.append(Text().append("checked  ", "dim").append("; ".join(filter(None, (fix.verified, fix.cost)))))
    return rows


def _indent(text: Text) -> Text:
    shown = Text("  ", no_wrap=text.no_wrap, overflow=text.overflow)
    return shown.append_text(text)


def _place(place: PlaceView) -> list[Text]:
    return [_place_head(place), *_excerpt([(row.number, row.text, row.hit, "") for row in place.lines])]


def _both(shown: EvidenceView) -> list[Text]:
    """The lines of both places, with the fate of each."""
    roles = {place.tag: place.role for place in shown.places}
    return _excerpt(
        [(row.number, row.text, bool(row.tags), ", ".join(roles[tag] for tag in row.tags)) for row in shown.both]
    )


def _place_head(place: PlaceView) -> Text:
    head = Text(no_wrap=True, overflow="ellipsis")  # a long line is cut, never wrapped over the next
    head.append(f"{place.role:<8} ", _FATE_STYLE.get(place.role, "dim"))
    head.append(place.where, "underline")
    if place.function:
        head.append(f"  in {place.function}", "dim")
    calls = place.calls[:-1] if place.calls and place.calls[-1].startswith("…") else place.calls
    if calls:
        head.append("  ← " + " ← ".join(frame.replace("  ", " at ") for frame in calls), "dim")
    return head


def _excerpt(lines: Sequence[tuple[int, str, bool, str]]) -> list[Text]:
    """Lines of source: number, text, whether it is marked, and what is added after it."""
    rows = []
    width = max((len(str(number)) for number, *_ in lines), default=0)
    for number, source, hit, role in lines:
        text = Text("  ", no_wrap=True, overflow="ellipsis")
        text.append(f"{'>' if hit else ' '} {number:>{width}} │ ", "bold" if hit else "dim")
        text.append(source, "bold" if hit else "dim")
        if role:
            text.append(f"  ← {role}", _FATE_STYLE.get(role, "dim"))
        rows.append(text)
    return rows


def _check(finding: FindingView) -> Text:
    text = Text().append("check    ", "dim")
    text.append(finding.outcome)
    text.append("".join(f"; {words}" for words in (finding.states, finding.found) if words), "dim")
    for row in telling(finding.output, OUTPUT_LINES):
        text.append(f"\n          {row}")
    return text


def _facts(facts: tuple[FactView, ...]) -> Text:
    text = Text()
    for position, fact in enumerate(facts):
        text.append(" · " if position else "", "dim")
        text.append(fact.value, _TONE_STYLE[fact.tone])
        text.append(f" {fact.label}", "dim")
    return text


def _summary(view: RunView, html_path: str) -> list[RenderableType]:
    parts: list[RenderableType] = [
        Text(view.headline if view.no_verdict else view.counted, _STATUS_STYLE[view.status]),
        *((_indent(Text(view.scope)),) if view.scope else ()),
        *(_indent(Text(sentence)) for sentence in view.base),
    ]
    if view.counts:
        parts.append(_indent(Text().append("states  ", "dim").append_text(_facts(view.counts))))
    if view.trace:
        known, events = view.trace[:2]
        trace = Text().append("trace   ", "dim").append(known.value, _TONE_STYLE[known.tone])
        share = f" accounted for ({known.note})" if known.note else ""
        parts.append(_indent(trace.append(f"{share}, {events.value} events: {events.note}", "dim")))
    if view.unexercised:
        shown = ", ".join(f"{one.label} ({one.value})" for one in view.unexercised[:UNEXERCISED_SHOWN])
        more = " and others" if len(view.unexercised) > UNEXERCISED_SHOWN else ""
        parts.append(_indent(Text().append("gaps    ", "dim").append(f"{view.unexercised_summary}: {shown}{more}")))
    if view.groups_summary:
        parts.append(_indent(Text().append("groups  ", "dim").append(view.groups_summary)))
    for label, value in (("time", next(f.value for f in view.run if f.label == "time")), ("html", html_path)):
        if value:
            parts.append(_indent(Text().append(f"{label:<8}", "dim").append(value, "default")))
    for caveat in view.caveats:
        parts.append(_indent(Text(f"! {caveat}", "yellow")))
    for unit in view.not_instrumented[:10]:
        parts.append(_indent(Text(f"  not instrumented: {unit.label}: {unit.value}", "yellow")))
    if len(view.not_instrumented) > 10:
        parts.append(_indent(Text(f"  … and {len(view.not_instrumented) - 10} more", "yellow")))
    for call in view.unmodelled[:10]:
        parts.append(_indent(Text(f"  not modelled: {call}", "yellow")))
    for note in view.notes:
        parts.append(_indent(Text(f"note: {note}")))
    for warning in view.warnings:
        parts.append(_indent(Text(f"warning: {warning}", "yellow")))
    return parts
