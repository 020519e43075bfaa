"""How an order of actions of nodes is shown: as a table of actions, and as a space-time diagram."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from crashcheck.checker.evidence import PENDING, ActionOrder, ActionRow
from crashcheck.checker.results import Finding
from crashcheck.reports.view import sentences
from crashcheck.reports.view.evidence.values import Context, EvidenceView, FlowStep, Renderer
from crashcheck.reports.view.places import place_view
from crashcheck.reports.view.space_time import SpaceTime, space_time
from crashcheck.reports.view.text import line

ROWS_MAX = 400  # of the table; the diagram has as many as the report's steps permit


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderView(EvidenceView):
    """An order of actions as it is shown."""

    picture: SpaceTime


def view(finding: Finding, order: ActionOrder, context: Context) -> OrderView:
    """The actions of all nodes in their order, the pair that matters marked by letters."""
    pair = [row for row in order.rows if row.role]
    return OrderView(
        title="Order of actions",
        occasion="order",
        after=f"after {line(order.when, 80)}",
        summary=line(order.summary, 120),
        sentence=sentences.KIND_SENTENCE[finding.kind],
        places=(place_view(finding.location, "", "the nodes", context.sources),),
        story=(
            *(f"{_letter(row)}: {line(row.what, 200)}." for row in pair),
            f"Then {line(order.ending, 200)}.",
            *(["If B precedes A, it does not."] if len(pair) == 2 else []),
        ),
        rows=tuple(_rows(order)),
        on_terminal=True,
        flow=tuple(_flow(finding, order)),
        template="space_time.html.j2",
        picture=space_time(order, max(context.most_steps, 1)),
    )


def _letter(row: ActionRow) -> str:
    return {"first": "A", "second": "B"}.get(row.role, " ")


def _rows(order: ActionOrder) -> Iterator[str]:
    """A line for each action: its letter, number, what happens, and what the node prints."""
    left_out = max(0, len(order.rows) - ROWS_MAX)
    if left_out:
        yield f"… {sentences.plural(left_out, 'action')} not shown …"
    rows = list(enumerate(order.rows, 1))[left_out:]
    shown = [
        (_letter(row), "-" if row.kind == PENDING else str(at), line(row.what, 100), _more(row)) for at, row in rows
    ]
    width = max((len(what) for _, _, what, _ in shown), default=0)
    digits = max((len(number) for _, number, _, _ in shown), default=1)
    for letter, number, what, more in shown:
        yield f"{letter}  {number:>{digits}}  {what:<{width}}  {more}".rstrip()
    yield f"--- {line(order.ending, 200)}"


def _more(row: ActionRow) -> str:
    printed = [f"prints {line(row.printed, 60)}"] if row.printed else []
    disk = [f"its disk {line(row.disk, 100)}"] if row.disk else []
    return "; ".join([*disk, *printed, *([row.ended] if row.ended else [])])


def _flow(finding: Finding, order: ActionOrder) -> Iterator[FlowStep]:
    """The actions by node; of none a place in the source is known but that of the nodes."""
    place = finding.location
    for at, row in enumerate(order.rows, 1):
        lane = order.nodes[row.node] if 0 <= row.node < len(order.nodes) else "network"
        importance = "essential" if row.role else "important"
        yield FlowStep(line(lane, 60), at, line(row.what, 200), place.file, place.line, 0, importance)  # type: ignore[arg-type]


RENDERER = Renderer("order", ActionOrder, "order of actions", view)
