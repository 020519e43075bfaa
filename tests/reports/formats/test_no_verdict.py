"""A run whose failing states are not proved is never reported as one without findings: in all formats."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from crashcheck.checker.results import TO_SETTLE, FailOn, NotFollowed, RunResult, StopReason
from crashcheck.reports.formats import html, json_report, junit, markdown, sarif, terminal
from crashcheck.reports.view import sentences
from crashcheck.reports.view.run_view import build_view
from support.reports.runs import ALL, LEVEL_HASH, TRACE, UNCERTAIN, run

UNPROVED = run(uncertain=(replace(UNCERTAIN, uncertain=f"it is so{TO_SETTLE}build z with crashcheck-cc"),))
NOTHING = run(states=replace(ALL, executed=0, pruned=0), stop=StopReason.BUDGET_SECONDS)


@pytest.mark.parametrize("fail_on", ["none", "note"])
def test_where_unproved_failures_do_not_count_or_fail_the_run_no_format_has_no_verdict(fail_on: FailOn) -> None:
    result = replace(UNPROVED, fail_on=fail_on)
    view = build_view(result)
    assert (view.no_verdict, view.headline) == ("", view.counted)
    assert view.counted.startswith("1 uncertain finding")
    written = (sarif.render(result, view, str), json_report.render(result), junit.render(view), markdown.render(view))
    for text in (*written, terminal.render(view, width=1000), html.render(view)):
        assert "No verdict" not in text
    assert build_view(json_report.load(json_report.render(result))) == view


UNSEEN = run(
    trace=replace(TRACE, not_followed=tuple(NotFollowed(name, f"no {name[0]}") for name in ("ab", "ac", "b", "c")))
)


def test_what_was_not_recorded_is_named_with_the_way_out() -> None:
    assert sentences.headline(UNSEEN) == (
        "No verdict: not all changes were recorded: ab, ac, b and 1 more; "
        "all 412 feasible crash states checked. To get a verdict: no a; no b"
    )
    assert build_view(UNSEEN).no_verdict == "not-recorded"
    assert sentences.headline(run(LEVEL_HASH, trace=UNSEEN.trace)) == sentences.headline(
        run(LEVEL_HASH)
    )  # a bug is one anyway


@pytest.mark.parametrize("result", [UNPROVED, NOTHING, UNSEEN], ids=["unproved", "nothing checked", "not recorded"])
def test_each_format_has_the_same_headline(result: RunResult) -> None:
    view, headline = build_view(result), sentences.headline(result)
    assert headline.startswith("No verdict: ")
    log = json.loads(sarif.render(result, view, str))
    (invocation,) = log["runs"][0]["invocations"]
    errors = [note for note in invocation["toolExecutionNotifications"] if note["level"] == "error"]
    assert [note["message"]["text"] for note in errors] == [headline]
    assert json.loads(json_report.render(result))["run"]["summary"] == headline
    for text in (terminal.render(view, width=1000), html.render(view), markdown.render(view), junit.render(view)):
        assert headline in text
        assert "No findings" not in text
