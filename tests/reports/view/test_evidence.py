"""A kind of evidence that the product does not know passes through every report once its renderer is registered."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
from jsonschema import Draft202012Validator

from crashcheck.change.diff import Diff, parse
from crashcheck.checker.baseline import matched, read_baseline, updated, write_baseline
from crashcheck.checker.policy import Suppression, fails, judge
from crashcheck.checker.results import Evidence, Finding, FindingKind, Level, Location, Outcome, Verdict
from crashcheck.masking import Mask
from crashcheck.reports.formats import html, json_report, junit, markdown, sarif, terminal, workflow_commands
from crashcheck.reports.github.annotations import place, remarks
from crashcheck.reports.github.verdict import verdict
from crashcheck.reports.view import evidence as room
from crashcheck.reports.view.evidence.values import Context, EvidenceView, FlowStep, Renderer
from crashcheck.reports.view.places import place_view
from crashcheck.reports.view.run_view import build_view
from support.reports import schema
from support.reports.runs import ALL, LEVEL_HASH, SOME, at, run


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message that arrived."""

    what: str
    sender: str
    receiver: str
    sent: Location


@dataclass(frozen=True, slots=True)
class MessageOrder(Evidence):
    """An order of messages between processes after which a check fails."""

    deliveries: tuple[Delivery, ...]
    late: int  # the one that was too late

    @property
    def summary(self) -> str:
        return f"in which `{self.deliveries[self.late].what}` is last"

    @property
    def blamed(self) -> tuple[Location, ...]:
        return (self.deliveries[self.late].sent,)

    @property
    def places(self) -> tuple[Location, ...]:
        return (*self.blamed, *(one.sent for one in self.deliveries))

    def level(self, model: str) -> Level:
        return "warning"


def view(finding: Finding, order: MessageOrder, context: Context) -> EvidenceView:
    """One row and one step for each delivery."""
    words = [f"{one.sender} -> {one.receiver}  {one.what}" for one in order.deliveries]
    return EvidenceView(
        title="Order of messages",
        occasion="order",
        after="after messages out of order",
        summary=order.summary,
        sentence="Nothing makes the node wait for the vote.",
        places=tuple(place_view(each, "", "sent here", context.sources) for each in finding.blamed),
        story=tuple(f"{text}." for text in words),
        rows=tuple(words),
        flow=tuple(
            FlowStep(one.receiver, number, text, one.sent.file, one.sent.line, one.sent.column)
            for number, (one, text) in enumerate(zip(order.deliveries, words, strict=True), 1)
        ),
    )


COMMIT = at(9, "", "send_commit", column=0)
VOTE = at(8, "", "send_vote", column=0)
ORDER = Finding(
    id="MSG-1c0ffee5",
    kind=FindingKind.ORDERING,
    model="free clock",
    message="`commit` from n1 to n2 is delivered before `vote` from n3 to n1",
    location=COMMIT,
    evidence=MessageOrder(
        Verdict(Outcome.FAIL, 1, None, "two leaders in term 3, password=hunter2hunter2\n", False, 0.5),
        (Delivery("commit", "n1", "n2", COMMIT), Delivery("vote", "n3", "n1", VOTE)),
        1,
    ),
    replay="order:aebagbaf",
    states=2,
)
RESULT = run(ORDER, LEVEL_HASH)


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setattr(room, "_RENDERERS", dict(room._RENDERERS))
        room.register(Renderer("message-order", MessageOrder, "message", view))
        yield


def itself(name: str) -> str:
    return name


def test_json_holds_it_and_is_read_back_and_is_of_the_published_schema() -> None:
    text = json_report.render(RESULT)
    assert json_report.load(text) == RESULT
    written = json.loads(text)["findings"][0]
    assert (written["level"], written["evidence"]["type"], written["evidence"]["late"]) == (
        "warning",
        "message-order",
        1,
    )
    assert (written["crash_point"], written["schedule"]) == ("in which `vote` is last", [])
    assert list(Draft202012Validator(schema.published()).iter_errors(json.loads(text))) == []


def test_a_reader_that_does_not_know_the_kind_keeps_the_head(monkeypatch: pytest.MonkeyPatch) -> None:
    text = json_report.render(RESULT)
    room._RENDERERS.pop(MessageOrder)
    (read, _) = json_report.load(text).findings
    assert (read.id, read.message, read.location, read.replay) == (ORDER.id, ORDER.message, COMMIT, ORDER.replay)


def test_a_wrong_field_of_it_is_refused_with_its_name() -> None:
    document = json.loads(json_report.render(RESULT))
    document["findings"][0]["evidence"]["late"] = "never"
    with pytest.raises(Exception, match=r"late: Expected `int`, got `str`"):
        json_report.load(json.dumps(document))


def test_the_terminal_has_the_head_and_its_places_and_its_summary() -> None:
    text = terminal.render(build_view(run(ORDER)), width=200)
    assert text.splitlines()[:3] == [
        ORDER.message,
        "  ordering  [free clock]  MSG-1c0ffee5",
        "  check    the check exited with status 1; 2 failing states have this cause",
    ]
    assert "  sent here src/level_hash.c:9  in send_commit" in text
    assert "  order    in which `vote` is last" in text
    assert "  replay   crashcheck replay order:aebagbaf" in text
    assert "crash " not in text.split("1 finding;")[0]


def test_the_page_has_its_heading_its_sentence_its_story_and_its_rows() -> None:
    page = html.render(build_view(RESULT))
    shown, other = page.split('id="f1"')[1].split('id="f2"')
    assert '<h4 class="head">Order of messages</h4>' in shown
    assert "Nothing makes the node wait for the vote." in shown
    assert "<li>n1 -&gt; n2  commit.</li>" in shown
    assert ">n1 -&gt; n2  commit\nn3 -&gt; n1  vote</pre>" in shown
    assert "Crash schedule" not in shown
    assert "Crash schedule" in other


def test_markdown_and_junit_have_its_rows() -> None:
    for text in (markdown.render(build_view(run(ORDER))), junit.render(build_view(run(ORDER))).replace("&gt;", ">")):
        assert "n1 -> n2  commit\nn3 -> n1  vote" in text
        assert "After the order, the check exited with status 1" in text


def test_sarif_has_a_flow_for_each_receiver() -> None:
    log = json.loads(sarif.render(run(ORDER), build_view(run(ORDER)), itself))
    (result,) = log["runs"][0]["results"]
    (flow,) = result["codeFlows"]
    assert flow["message"]["text"] == "The order of messages"
    steps = {one["id"]: one["locations"] for one in flow["threadFlows"]}
    assert [step["executionOrder"] for lane in ("n2", "n1") for step in steps[lane]] == [1, 2]
    assert "Order in which `vote` is last: the check exited with status 1." in result["message"]["text"]
    assert [one["message"]["text"] for one in result["relatedLocations"]] == [
        "the other message, sent here: src/level_hash.c:8"
    ]


def diff(line: int) -> Diff:
    file = "src/level_hash.c"
    return parse(f"--- a/{file}\n+++ b/{file}\n@@ -{line - 1},0 +{line},1 @@\n+x\n")


def test_an_annotation_is_at_its_place_or_at_another_one_that_the_change_shows() -> None:
    assert place(ORDER, itself).line == 9
    placed = place(ORDER, itself, diff(8))
    assert (placed.spot, placed.line) == ("schedule", 8)
    assert placed.because.startswith("The message is at src/level_hash.c:9 (`b->tokens[slot].valid = 1;`), which")
    commands = workflow_commands.render(remarks(run(ORDER), build_view(run(ORDER)), itself))
    assert commands.startswith("::warning file=src/level_hash.c,line=9,title=crashcheck%3A Ordering [free clock]::")


def test_the_first_line_on_a_pull_request_names_what_happened() -> None:
    _, words = verdict(run(ORDER), build_view(run(ORDER)), "0123456789", True, False)
    assert words.startswith('Fails: after messages out of order "two leaders in term 3')


def test_the_baseline_a_suppression_and_the_severity_apply_to_it() -> None:
    known, changes = updated(run(ORDER), ())
    assert changes == (f"added {ORDER.id}: {ORDER.message}",)
    assert matched([ORDER], read_baseline(write_baseline(known), "b")) == {0: 0}
    assert not fails(judge(run(ORDER), baseline=known))
    assert [fails(replace(run(ORDER), fail_on=level)) for level in ("warning", "error")] == [True, False]
    rule = Suppression("r", "why", file="src/level_hash.c", line=VOTE.line)
    assert judge(run(ORDER), (rule,)).findings[0].suppressed == "why (r)"


def test_secrets_in_it_are_masked() -> None:
    masked = Mask({"DB_PASSWORD": "hunter2hunter2"}).value(run(ORDER))
    (found,) = masked.findings
    assert found.evidence.verdict.output == "two leaders in term 3, password=***\n"


def test_a_search_of_something_else_counts_and_names_it_in_every_report() -> None:
    mutants = replace(RESULT, findings=(), states=replace(ALL, unit="mutant"))
    view = build_view(mutants)
    assert view.headline == "No findings; all 412 feasible mutants checked"
    assert view.scope == "One recorded run was explored under the model px86 with the strategy exhaustive."
    passes = verdict(mutants, view, "0123456789", False, False)[1]
    assert passes.startswith("Passes: no mutant fails; 0123456, 412 of 412")
    shown = [terminal.render(view), html.render(view), markdown.render(view), junit.render(view)]
    shown.append(sarif.render(mutants, view, itself))
    assert [text for text in shown if "crash state" in text.lower()] == []
    assert 'name="mutants"' in junit.render(view)
    assert json.loads(json_report.render(mutants))["run"]["states"]["unit"] == "mutant"
    assert json_report.load(json_report.render(mutants)) == mutants
    assert "unit" not in json.loads(json_report.render(RESULT))["run"]["states"]


def test_counts_of_two_searches_add_up_and_are_exact_if_both_are() -> None:
    other = replace(SOME, feasible_exact=False, feasible_note="a bound", signatures=3)
    both = ALL.plus(other)
    assert (both.feasible, both.feasible_exact, both.feasible_note) == (412 + 10**77, False, "a bound")
    assert (both.executed, both.pruned, both.put_off, both.signatures) == (780, 44, 2, 3)
    assert (both.unit, both.not_explored, both.reused_from) == ("crash state", (), "")
