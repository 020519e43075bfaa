"""An order of actions of nodes in the reports: a table, a space-time diagram, and JSON that is read back."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from crashcheck.checker.evidence import PENDING, ActionOrder, ActionRow
from crashcheck.checker.results import (
    NODE_RUN,
    Finding,
    FindingKind,
    Location,
    Outcome,
    RunResult,
    StateCounts,
    StopReason,
    TraceSummary,
    Verdict,
)
from crashcheck.reports.formats import html, json_report, terminal
from crashcheck.reports.view.run_view import build_view
from crashcheck.reports.view.space_time import COLUMN_PX, space_time


def row(kind: str, node: int, peer: int = -1, what: str = "", **more: object) -> ActionRow:
    return replace(ActionRow(kind, node, peer, what or f"{kind} {node}", "", -1, "", "", ""), **more)  # type: ignore[arg-type]


ROWS = (
    row("start", 0),
    row("start", 1),
    row("deliver", 1, 0, "`ask` from n0 to n1 is delivered", data="ask", sent=0, printed="asked"),
    row("crash-process", 0, what="n0 is killed"),
    row("lose", 0, 1, "`answer` from n1 to n0 is lost", data="answer", sent=2, role="first"),
    row("restart", 0, what="n0 starts again"),
    row("timer", 1, what="timer 1 of n1 fires", ended="ended with status 2"),
    row(PENDING, 1, 0, "not yet: `<b>` from n0 to n1", data="<b>", sent=5, role="second"),
)
ORDER = ActionOrder(
    Verdict(Outcome.FAIL, 2, None, "asked\n", False, 0.0), ("n0", "n1"), ROWS, "n1 ends with status 2", "7 actions"
)
FINDING = Finding(
    "0123456789ab",
    FindingKind.ACTIONS,
    "none",
    "n1 ends with status 2 if `answer` from n1 to n0 is lost before `<b>` from n0 to n1 is delivered",
    Location("crashcheck.toml", 3, 0, "", "", ()),
    ORDER,
    "order:aaaa",
    3,
)
RESULT = RunResult(
    "crashcheck.toml",
    "none",
    "dpor",
    StopReason.EXHAUSTED,
    StateCounts(8, True, "", 8, 0, 0, 3, 0, 0, unit=NODE_RUN),
    TraceSummary("", 0, 0, 0, 0, 0, 0, 0, (), 0, 0, 0, ()),
    (FINDING,),
    (),
    (),
    (),
    1.0,
    "1",
)


def test_a_terminal_shows_the_actions_as_a_table_with_the_pair() -> None:
    shown = terminal.render(build_view(RESULT), width=140)
    assert "Order of actions".lower() in shown
    assert "check    n1 ends with status 2; 3 failing runs have this cause" in shown
    assert re.search(r"A  5  `answer` from n1 to n0 is lost", shown)
    assert re.search(r"   7  timer 1 of n1 fires +ended with status 2", shown)
    assert re.search(r"B  -  not yet: `<b>` from n0 to n1\n +--- n1 ends with status 2", shown)
    assert "all 8 feasible runs checked" in shown


def test_json_is_read_back_as_it_was_written() -> None:
    assert json_report.load(json_report.render(RESULT)) == RESULT


def test_the_page_draws_each_action_without_scripts() -> None:
    page = html.render(build_view(RESULT))
    (picture,) = re.findall(r"<svg class=\"pic spacetime\".*?</svg>", page, re.S)
    tree = ElementTree.fromstring(picture)
    classes = [each.get("class") for each in tree.iter()]
    assert [name for name in classes if name and name.startswith("message")] == [
        "message delivered",
        "message lost",
        "message pending",
    ]
    assert (classes.count("crashbar"), classes.count("go clock"), classes.count("nodedown")) == (1, 1, 2)
    titles = [title.text for title in tree.iter("title")]
    assert titles[2] == "3: `ask` from n0 to n1 is delivered; prints asked"
    assert titles[-1] == "8: not yet: `<b>` from n0 to n1"
    assert all(group.get("tabindex") == "0" for group in tree.iter("g"))


def test_what_a_disk_kept_is_at_the_restart_in_the_table_and_in_the_diagram() -> None:
    kept = "kept 1 of 2 updates"
    rows = (*ROWS[:5], replace(ROWS[5], disk=kept), *ROWS[6:])
    result = replace(RESULT, findings=(replace(FINDING, evidence=replace(ORDER, rows=rows)),))
    assert re.search(rf"   6  n0 starts again +its disk {kept}", terminal.render(build_view(result), width=200))
    event = space_time(replace(ORDER, rows=rows), 100).events[5]
    assert (event.label, event.title) == ("kept 1 of 2", f"6: n0 starts again; its disk {kept}")
    assert json_report.load(json_report.render(result)) == result


@pytest.mark.parametrize("most", [3, 100])
def test_a_long_order_is_drawn_from_its_last_actions_and_says_so(most: int) -> None:
    picture = space_time(ORDER, most)
    assert (len(picture.events), picture.left_out) == (min(most, 8), max(8 - most, 0))
    assert all(0 <= each.x <= picture.end_x <= picture.width for each in picture.events)
    assert all(picture.left <= arrow.x1 <= arrow.x2 + 1 for arrow in picture.arrows)


@pytest.mark.parametrize(("label", "drawn"), [("72 01 04", "72 01 04"), ("", "append 0 x=1")])
def test_an_arrow_shows_the_label_of_its_message_or_its_first_bytes(label: str, drawn: str) -> None:
    rows = [replace(one, data="append 0 x=1", label=label) if one.sent >= 0 else one for one in ROWS]
    assert {arrow.label for arrow in space_time(replace(ORDER, rows=tuple(rows)), 100).arrows} == {drawn}


def test_labels_of_messages_with_one_beginning_are_near_their_ends() -> None:
    rows = [*ROWS[:2], *(row("deliver", 1, 0, data="abcdefgh", sent=0) for _ in range(20))]
    arrows = space_time(replace(ORDER, rows=tuple(rows)), 100).arrows[4:]
    assert all(arrow.x2 - arrow.label_x < 5 * COLUMN_PX for arrow in arrows)
